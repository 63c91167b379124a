/* Attempts of a hostile job. Exit status 0: the attempt succeeded; 1: it failed; 2: it is
 * unknown. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *attempt;
#define TRY(name) if (strcmp(attempt, name) == 0)

/* Whether a call succeeded. */
static int worked(long result)
{
	if (result < 0)
		perror(attempt);
	return result < 0 ? 1 : 0;
}

static int can_open(const char *path, int flags)
{
	int fd = open(path, flags, 0644);
	char byte;
	if (fd < 0 || (flags == O_RDONLY && read(fd, &byte, 1) < 0)) {
		perror(path);
		return 1;
	}
	return 0;
}

static int others(void)
{
	DIR *dir = opendir("/.outboard/proc");
	struct dirent *entry;
	int seen = 0;
	if (!dir)
		return -1;
	while ((entry = readdir(dir)))
		if (atoi(entry->d_name) > 1 && atoi(entry->d_name) != getpid())
			seen++;
	closedir(dir);
	return seen;
}

static int fill(const char *path)
{
	static char block[1 << 20];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	memset(block, 1, sizeof block);
	for (long i = 0; i < 4096; i++)
		if (write(fd, block, sizeof block) != sizeof block) {
			perror(path);
			return 1;
		}
	return 0;
}

static int take(long megabytes)
{
	for (long i = 0; i < megabytes; i++) {
		char *memory = malloc(1 << 20);
		if (!memory)
			return 1;
		memset(memory, 1, 1 << 20);
	}
	return 0;
}

static int calls(void)
{
	static char buffer[4096];
	TRY("socket-inet") return worked(socket(AF_INET, SOCK_STREAM, 0));
	TRY("socket-unix") return worked(socket(AF_UNIX, SOCK_STREAM, 0));
	TRY("socket-netlink") return worked(socket(AF_NETLINK, SOCK_RAW, 0));
	TRY("socketpair") { int pair[2]; return worked(socketpair(AF_UNIX, SOCK_STREAM, 0, pair)); }
	TRY("mount") return worked(mount("none", "/.outboard/tmp", "tmpfs", 0, ""));
	TRY("umount") return worked(umount2("/.outboard/proc", MNT_DETACH));
	TRY("unshare-user") return worked(unshare(CLONE_NEWUSER));
	TRY("unshare-mount") return worked(unshare(CLONE_NEWNS));
	TRY("clone-user") return worked(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
	TRY("clone-pid") return worked(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
	TRY("clone3") { uint64_t args[11] = { CLONE_NEWUSER, 0, 0, 0, SIGCHLD };
		return worked(syscall(SYS_clone3, args, sizeof args)); }
	TRY("setns") return worked(setns(open("/proc/self/ns/user", O_RDONLY), 0));
	TRY("chroot") return worked(chroot("/dev"));
	TRY("pivot") return worked(syscall(SYS_pivot_root, "/.outboard/tmp", "/.outboard/tmp"));
	TRY("open-tree") return worked(syscall(428, AT_FDCWD, "/", 1));
	TRY("ptrace-init") return worked(ptrace(PTRACE_ATTACH, 1, 0, 0));
	TRY("ptrace-child") { pid_t child = fork();
		if (!child) { pause(); _exit(0); }
		return worked(ptrace(PTRACE_ATTACH, child, 0, 0)); }
	TRY("kill-init") { kill(1, SIGKILL); kill(1, SIGTERM); usleep(50000); return 1; }
	TRY("stop-init") { kill(1, SIGSTOP); usleep(50000); return 1; }
	TRY("bpf") return worked(syscall(SYS_bpf, 0, buffer, 72));
	TRY("io-uring") return worked(syscall(SYS_io_uring_setup, 1, buffer));
	TRY("keyctl") return worked(syscall(SYS_keyctl, 0, -3, 1));
	TRY("add-key") return worked(syscall(SYS_add_key, "user", "a", "b", 1, -3));
	TRY("perf") { buffer[0] = 1; buffer[4] = 112;
		return worked(syscall(SYS_perf_event_open, buffer, 0, -1, -1, 0)); }
	TRY("userfaultfd") return worked(syscall(SYS_userfaultfd, 1));
	TRY("personality") return worked(personality(ADDR_NO_RANDOMIZE));
	TRY("memfd") return worked(memfd_create("a", 0));
	TRY("shm") return worked(shmget(IPC_PRIVATE, 4096, 0600));
	TRY("fallocate") return worked(fallocate(1, FALLOC_FL_KEEP_SIZE, 0, 1L << 30));
	TRY("mknod") return worked(mknod("/.outboard/tmp/null", S_IFCHR | 0666, makedev(1, 3)));
	TRY("setuid") return worked(setuid(0));
	TRY("raise-limit") { struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
		return worked(setrlimit(RLIMIT_AS, &limit)); }
	TRY("sethostname") return worked(sethostname("a", 1));
	TRY("tiocsti") return worked(ioctl(0, TIOCSTI, "a"));
	TRY("capset") { struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
		struct __user_cap_data_struct data[2] = { { 1 << CAP_SYS_ADMIN, 1 << CAP_SYS_ADMIN, 0 } };
		return worked(syscall(SYS_capset, &header, data)); }
#ifdef __x86_64__
	TRY("x32") return worked(syscall(0x40000000 | 39));
#else
	TRY("x32") return 1;
#endif
	return 2;
}

static int files(const char *argument)
{
	char target[256];
	TRY("read") return can_open(argument, O_RDONLY);
	TRY("read-init-memory") return can_open("/.outboard/proc/1/mem", O_RDWR);
	TRY("init-root") return worked(readlink("/.outboard/proc/1/root", target, sizeof target));
	TRY("init-cwd") return worked(readlink("/.outboard/proc/1/cwd", target, sizeof target));
	TRY("init-fds") return opendir("/.outboard/proc/1/fd") ? 0 : 1;
	TRY("dumpable-init") return can_open("/.outboard/proc/1/environ", O_RDONLY);
	TRY("write-root") return can_open("/new", O_WRONLY | O_CREAT);
	TRY("write-usr") return can_open("/usr/bin/new", O_WRONLY | O_CREAT);
	TRY("write-toolchain") return can_open("/usr/bin/true", O_WRONLY);
	TRY("chmod-toolchain") return worked(chmod("/usr/bin/true", 0777));
	TRY("write-dev") return can_open("/dev/new", O_WRONLY | O_CREAT);
	TRY("sysrq") return can_open("/.outboard/proc/sysrq-trigger", O_WRONLY);
	TRY("host-processes") return others() != 0 ? 0 : 1;
	TRY("append") { int fd = open("client", O_WRONLY | O_APPEND);
		return worked(write(fd, "more", 4)); }
	TRY("link") return worked(link("client", "new"));
	TRY("symlink") return worked(symlink("client", "new"));
	TRY("rename-dir") return worked(rename("dir", "other"));
	TRY("change") {
		mkdir("made", 0755);
		mkdir("made/deep", 0755);
		close(open("made/deep/file", O_WRONLY | O_CREAT, 0640));
		rename("client", "made/moved");
		rename("made/deep/file", "renamed");
		unlink("gone");
		return access("client", F_OK) || access("gone", F_OK) ? access("made/moved", R_OK) : 1;
	}
	TRY("fill") return fill(argument);
	TRY("many-files") {
		char name[64];
		for (int i = 0; i < 100000; i++) {
			snprintf(name, sizeof name, "/.outboard/tmp/%d", i);
			int fd = open(name, O_WRONLY | O_CREAT, 0600);
			if (fd < 0)
				return worked(fd);
			close(fd);
		}
		return 0;
	}
	TRY("deep") {
		if (chdir("/.outboard/tmp"))
			return 1;
		for (int i = 0; i < 12000; i++)
			if (mkdir("d", 0700) || chdir("d"))
				return worked(-1);
		return 0;
	}
	TRY("keep") { fill(argument); sleep(20); return 0; }
	TRY("leave") {
		if (fork() == 0) { setsid(); if (fork() == 0) for (;;) pause(); _exit(0); }
		mkdir("/.outboard/tmp/dir", 0700);
		close(open("/.outboard/tmp/dir/file", O_WRONLY | O_CREAT, 0600));
		chmod("/.outboard/tmp/dir", 0);
		close(open("/.outboard/tmp/.hidden", O_WRONLY | O_CREAT, 0600));
		return can_open("left", O_WRONLY | O_CREAT);
	}
	TRY("anything-left") {
		DIR *dir = opendir("/.outboard/tmp");
		int entries = 0;
		while (dir && readdir(dir))
			entries++;
		fprintf(stderr, "%d entries, %d processes, left: %d\n", entries, others(), access("left", F_OK));
		return dir && entries == 2 && others() == 0 && access("left", F_OK) != 0 ? 1 : 0;
	}
	return 2;
}

int main(int count, char **arguments)
{
	attempt = arguments[1];
	const char *argument = count > 2 ? arguments[2] : "";
	TRY("nothing") return 0;
	TRY("fork-bomb") for (;;) if (fork() < 0) usleep(1000);
	TRY("allocate") return take(1000);
	TRY("allocate-in-many") { for (int i = 0; i < 8; i++) if (fork() == 0) break;
		take(100); sleep(20); return 0; }
	TRY("sleep") { sleep(60); return 0; }
	TRY("spin") for (;;);
	TRY("talk") for (;;) if (write(1, attempt, 4) < 0) return 1;
	int result = calls();
	return result == 2 ? files(argument) : result;
}
