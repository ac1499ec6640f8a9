// Finds faces in a picture with a compiled UltraFace network.
//
//   tessera compile version-RFB-320.onnx -o faces.so
//   face_detect faces.so photo.jpg [boxes.png]
#include "common/drawing.h"
#include "common/image_io.h"
#include "common/model.h"
#include "face_detect/faces.h"

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

namespace example {
namespace {

void run(const char* module_path, const char* picture_path, const char* out_path) {
  Image picture = load_image(picture_path);
  Model model(module_path, 0);
  const std::vector<std::int64_t> input = model.input_dims(0);
  const bool fits = input.size() == 4 && input[0] == 1 && input[1] == 3 && model.output_dims(0).back() == 2 &&
                    model.output_dims(1).back() == 4;
  if (!fits) throw std::runtime_error(std::string("'") + module_path + "' is not an UltraFace network");

  fill_face_input(picture, int(input[3]), int(input[2]), model.input(0));
  model.run();
  const std::vector<Face> faces = find_faces(model.output(0), model.output(1), picture.width, picture.height);

  std::printf("%zu faces%s\n", faces.size(), faces.empty() ? "" : "; score, then left, top, right, bottom in pixels:");
  for (const Face& face : faces) {
    std::printf("  %.3f  %.0f %.0f %.0f %.0f\n", face.score, face.left, face.top, face.right, face.bottom);
  }
  if (out_path == nullptr) return;
  for (const Face& face : faces) {
    const Point corners[] = {
        {face.left, face.top}, {face.right, face.top}, {face.right, face.bottom}, {face.left, face.bottom}};
    draw_polygon(picture, corners, 3, {226, 45, 94});
  }
  save_png(picture, out_path);
}

}  // namespace
}  // namespace example

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fputs("usage: face_detect MODULE.so PICTURE [BOXES.png]\n", stderr);
    return 1;
  }
  try {
    example::run(argv[1], argv[2], argc == 4 ? argv[3] : nullptr);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "face_detect: error: %s\n", error.what());
    return 1;
  }
}
