// Device printf reaches the program's own standard output.
#include <fcntl.h>
#include <unistd.h>

#include "tests/apps/app.h"

int main() {
  const app::Device device;
  char path[] = "/tmp/flyt-printf-XXXXXX";
  const int file = ::mkstemp(path);
  ::unlink(path);
  std::fflush(stdout);
  const int terminal = ::dup(1);
  ::dup2(file, 1);
  const app::Launch launch{{1}, {1}};
  launch(device.kernel("say_hello"), 7);
  CHECK(cuCtxSynchronize());
  std::fflush(stdout);
  ::dup2(terminal, 1);
  char text[256] = {};
  const bool read = ::pread(file, text, sizeof(text) - 1, 0) > 0;
  std::printf("%s", text);
  const bool right =
      read && std::strcmp(text, "hello from block 0 thread 0: 7, 3.500, text\n") == 0;
  return app::finish("device_printf", right, "one line through standard output");
}
