/* pair_openmp: fixed work in parallel regions of two threads, with OpenMP as it is installed.
 * The command line and the output are those of upcall-workload. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PHASE 40000

static double now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static void spin(long iterations)
{
	for (long i = 0; i < iterations; i++)
		__asm__ volatile("");
}

static long number(int count, char **words, const char *key, long otherwise)
{
	size_t length = strlen(key);

	for (int i = 1; i < count; i++)
		if (!strncmp(words[i], key, length) && words[i][length] == '=')
			return atol(words[i] + length + 1);
	return otherwise;
}

int main(int argc, char **argv)
{
	long operations = number(argc, argv, "operations", 2000);
	double begin, end;
	char byte;

	omp_set_num_threads(2);
	if (number(argc, argv, "gate", 0) && read(0, &byte, 1) != 1) {
		fputs("pair_openmp: standard input closed before the start signal\n", stderr);
		return 1;
	}
	begin = now_ns();
	for (long i = 0; i < operations; i++) {
#pragma omp parallel
		spin(PHASE);
	}
	end = now_ns();
	printf("begin %.0f\nend %.0f\ndone\n", begin, end);
	return 0;
}
