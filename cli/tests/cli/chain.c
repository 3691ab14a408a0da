// chain WHILE TRACE: starts its successor and ends, over and over, as long as the file WHILE exists. Writes the file TRACE.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 3) return 2;
    signal(SIGTERM, SIG_IGN);
    while (!access(words[1], F_OK)) {
        close(open(words[2], O_CREAT | O_WRONLY, 0600));
        if (fork()) _exit(0);
    }
}
