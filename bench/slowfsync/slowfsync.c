// A library for LD_PRELOAD that adds FSYNC_DELAY_MICROSECONDS to fsync and fdatasync,
// as a slower disk would.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct timespec delay;

__attribute__((constructor)) static void configure(void) {
	const char *text = getenv("FSYNC_DELAY_MICROSECONDS");
	long microseconds = text ? atol(text) : 0;
	delay.tv_sec = microseconds / 1000000;
	delay.tv_nsec = microseconds % 1000000 * 1000;
	prctl(PR_SET_TIMERSLACK, 1UL); // nanoseconds; the default of 50 µs would add to the delay
}

int fsync(int fd) {
	nanosleep(&delay, NULL);
	return syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
	nanosleep(&delay, NULL);
	return syscall(SYS_fdatasync, fd);
}
