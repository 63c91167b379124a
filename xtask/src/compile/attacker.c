/* A compiler that attacks: the name of the source selects the attack. It makes an object only if
 * the attack succeeds. Called as: gcc -c WHAT.c -o WHAT.o */
#define main hostile
#include "hostile.c"
#undef main

static const char *secrets[] = {
	"/etc/shadow", "/etc/passwd", "/proc/1/environ", "/proc/self/root/etc/shadow",
	".secret", ".ssh/id", "../key", "../client/.ssh/id", "../server0/node.toml",
};

static int read_secrets(void)
{
	for (unsigned i = 0; i < sizeof secrets / sizeof *secrets; i++)
		if (can_open(secrets[i], O_RDONLY) == 0)
			return 0;
	return 1;
}

/* A file made beside the object must not reach the client. */
static int plant(void)
{
	const char *places[] = { "planted.h", "Makefile", "../planted", "/tmp/planted" };
	for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
		int fd = open(places[i], O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (fd >= 0 && write(fd, "planted\n", 8) == 8)
			close(fd);
	}
	return 0;
}

int main(int count, char **words)
{
	if (count < 5)
		return 1;
	char *what = strdup(words[2]);
	*strrchr(what, '.') = 0;
	char *arguments[] = { words[0], what, "", 0 };
	int failed = strcmp(what, "secrets") == 0 ? read_secrets()
		: strcmp(what, "plant") == 0 ? plant()
		: hostile(3, arguments);
	if (failed)
		return 1;
	FILE *object = fopen(words[4], "w");
	return !object || fputs("worked\n", object) < 0 || fclose(object) != 0;
}
