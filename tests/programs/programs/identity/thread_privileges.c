/* What a thread has given up it does not have back after it has parked: no_new_privs and effective
 * capabilities, looked at wherever it runs. */
#include "crowd.h"
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void *body(void *unused)
{
    (void)unused;
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    MUST((int)syscall(SYS_capget, &header, data));
    data[0].effective = data[1].effective = 0;
    MUST((int)syscall(SYS_capset, &header, data));
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    long back = 0;
    for (int i = 0; i < 200; i++) {
        usleep(300);
        back += prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1;
        MUST((int)syscall(SYS_capget, &header, data));
        back += (data[0].effective | data[1].effective) != 0;
    }
    return (void *)back;
}

int main(void)
{
    begin_crowd();
    long back = (long)join(start(body, NULL));
    check("thread_privileges", back == 0, "%ld times back", back);
    end_crowd();
    return verdict();
}
