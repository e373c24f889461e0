/* One thread touches pages that are not there. Another brings each when the kernel tells of it (userfaultfd). The toucher
 * says nothing before it blocks: the other runs only if its block is noticed. Arguments: pages touched at least, a file that is
 * made when the first are, and one that must be there before it ends. */
#include "case.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGES 64
#define PAGE 4096L

static int faults;
static char *place;
static _Atomic long rounds = LONG_MAX;

static void *bring(void *unused) {
  for (long brought = 0; brought < rounds;) {
    struct uffd_msg message;
    MUST(!(read(faults, &message, sizeof message) == sizeof message));
    MUST(!(message.event == UFFD_EVENT_PAGEFAULT));
    struct uffdio_range range = {message.arg.pagefault.address & ~(PAGE - 1), PAGE};
    struct uffdio_zeropage zero = {.range = range};
    if (ioctl(faults, UFFDIO_ZEROPAGE, &zero) == 0) {
      brought++;
    } else {
      /* A signal has interrupted the toucher, which was told of twice. */
      MUST(!(errno == EEXIST));
      MUST(ioctl(faults, UFFDIO_WAKE, &range));
    }
  }
  return unused;
}

int main(int count, char **words) {
  long least = count > 1 ? atol(words[1]) : 1000;
  faults = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
  if (faults < 0) {
    puts("skipped: no userfaultfd");
    return 0;
  }
  struct uffdio_api api = {.api = UFFD_API};
  MUST(!(ioctl(faults, UFFDIO_API, &api) == 0));
  place = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MUST(!(place != MAP_FAILED));
  struct uffdio_register area = {.range = {(unsigned long)place, PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  MUST(!(ioctl(faults, UFFDIO_REGISTER, &area) == 0));
  pthread_t bringer;
  MUST(!(pthread_create(&bringer, 0, bring, 0) == 0));
  for (long at = 0; at < rounds; at++) {
    if (at % PAGES == 0 && at > 0)
      MUST(!(madvise(place, PAGES * PAGE, MADV_DONTNEED) == 0));
    if (at >= least - 1 && at % PAGES == 0 && (count <= 3 || access(words[3], F_OK) == 0))
      rounds = at + 1;
    MUST(!(((volatile char *)place)[at % PAGES * PAGE] == 0));
    if (at == 1000 && count > 2)
      MUST(!(close(open(words[2], O_CREAT | O_WRONLY, 0600)) == 0));
  }
  MUST(!(pthread_join(bringer, 0) == 0));
  puts("ok faults_served");
  return 0;
}
