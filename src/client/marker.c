// A server that is told to use this library as its driver would talk to itself: it looks for this.
const char flyt_client_library[] __attribute__((visibility("default"))) = "flyt";
