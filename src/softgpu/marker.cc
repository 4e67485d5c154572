// The software GPU's mark: whoever loads a driver knows by it what it is, wherever the file lies.
extern "C" {

__attribute__((visibility("default"))) extern const char flyt_softgpu_library[];
const char flyt_softgpu_library[] = "flyt";

}  // extern "C"
