// Becomes or starts another program, by the call that is named: starts CALL PROGRAM. What that prints is the truth. Without words
// it prints its environment itself.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
extern int pidfd_spawn(int *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *) __attribute__((weak));
extern int pidfd_spawnp(int *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *) __attribute__((weak));
extern int execveat(int, const char *, char *const *, char *const *, int) __attribute__((weak));

int main(int count, char **arguments) {
    if (count < 3) {
        for (char **variable = environ; *variable; variable++) puts(*variable);
        return 0;
    }
    const char *call = arguments[1], *program = arguments[2];
    char *words[] = {arguments[2], 0};
    int status = 1;
    pid_t child;
    alarm(60);
    if (!strcmp(call, "execve")) execve(program, words, environ);
    if (!strcmp(call, "execv")) execv(program, words);
    if (!strcmp(call, "execvp")) execvp(program, words);
    if (!strcmp(call, "execvpe")) execvpe(program, words, environ);
    /* More arguments than registers have, and fewer. */
    if (!strcmp(call, "execl")) execl(program, program, (char *)0);
    if (!strcmp(call, "execlp")) execlp(program, program, (char *)0);
    if (!strcmp(call, "execle")) execle(program, program, (char *)0, environ);
    if (!strcmp(call, "execl-many")) execl(program, program, "-u", "A", "-u", "B", "-u", "C", "-u", "D", (char *)0);
    if (!strcmp(call, "execle-many")) execle(program, program, "-u", "A", "-u", "B", "-u", "C", "-u", "D", (char *)0, environ);
    if (!strcmp(call, "execl-fails") && execl("/nowhere/at/all", "all", "1", "2", "3", "4", "5", (char *)0) == -1) execl(program, program, (char *)0);
    if (!strcmp(call, "fexecve")) fexecve(open(program, O_RDONLY | O_CLOEXEC), words, environ);
    if (!strcmp(call, "fexecve-path")) fexecve(open(program, O_PATH | O_CLOEXEC), words, environ);
    if (!strcmp(call, "execveat") && execveat) execveat(AT_FDCWD, program, words, environ, 0);
    if (!strcmp(call, "execveat-open") && execveat) execveat(open(program, O_PATH | O_CLOEXEC), "", words, environ, AT_EMPTY_PATH);
    if (!strcmp(call, "execveat-folder") && execveat) execveat(open("/", O_PATH | O_CLOEXEC), program + 1, words, environ, 0);
    if (!strcmp(call, "posix_spawn") && posix_spawn(&child, program, 0, 0, words, environ)) return 3;
    if (!strcmp(call, "posix_spawnp") && posix_spawnp(&child, program, 0, 0, words, environ)) return 3;
    /* From glibc 2.39 on; a recorder has the function where the C library has none, and answers EINVAL. */
    int file, answer = 0;
    if (!strcmp(call, "pidfd_spawn")) answer = pidfd_spawn ? pidfd_spawn(&file, program, 0, 0, words, environ) : EINVAL;
    if (!strcmp(call, "pidfd_spawnp")) answer = pidfd_spawnp ? pidfd_spawnp(&file, program, 0, 0, words, environ) : EINVAL;
    if (answer) return answer == EINVAL ? 77 : 3;
    wait(&status);
    return WEXITSTATUS(status);
}
