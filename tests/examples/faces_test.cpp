#include "face_detect/faces.h"

#include <gtest/gtest.h>

#include <limits>

namespace example {
namespace {

TEST(Faces, NothingSureIsNoFace) {
  const float scores[] = {0.9f, 0.1f, 0.3f, 0.7f};
  const float boxes[] = {0, 0, 1, 1, 0, 0, 1, 1};
  EXPECT_TRUE(find_faces(scores, boxes, 100, 100).empty());  // 0.7 itself is not enough
  EXPECT_TRUE(find_faces({}, {}, 100, 100).empty());
}

TEST(Faces, BoxesAreScaledAndSortedByScore) {
  const float scores[] = {0, 0.8f, 0, 0.95f};
  const float boxes[] = {0.5f, 0.5f, 1, 1, 0, 0.25f, 0.25f, 0.5f};
  const std::vector<Face> faces = find_faces(scores, boxes, 200, 400);
  ASSERT_EQ(faces.size(), 2u);
  EXPECT_FLOAT_EQ(faces[0].score, 0.95f);
  EXPECT_FLOAT_EQ(faces[0].top, 100);
  EXPECT_FLOAT_EQ(faces[0].right, 50);
  EXPECT_FLOAT_EQ(faces[1].left, 100);
}

TEST(Faces, OfOverlappingBoxesTheSurestStays) {
  const float scores[] = {0, 0.8f, 0, 0.9f, 0, 0.85f};
  // The first two share 0.8 of their union; the third touches the second by less than 0.3.
  const float boxes[] = {0, 0, 0.5f, 0.5f, 0, 0, 0.5f, 0.4f, 0.4f, 0, 0.9f, 0.4f};
  const std::vector<Face> faces = find_faces(scores, boxes, 100, 100);
  ASSERT_EQ(faces.size(), 2u);
  EXPECT_FLOAT_EQ(faces[0].score, 0.9f);
  EXPECT_FLOAT_EQ(faces[1].score, 0.85f);
}

TEST(Faces, NotANumberIsNoFace) {
  const float scores[] = {0, std::numeric_limits<float>::quiet_NaN()};
  const float boxes[] = {0, 0, 1, 1};
  EXPECT_TRUE(find_faces(scores, boxes, 10, 10).empty());
}

TEST(Faces, InputIsRedGreenBlueAroundZero) {
  Image image(2, 2);
  for (int i = 0; i < 4; ++i) image.rgb[i * 3] = 255, image.rgb[i * 3 + 1] = 127, image.rgb[i * 3 + 2] = 0;
  std::vector<float> values(3 * 4 * 6);
  fill_face_input(image, 6, 4, values);
  EXPECT_FLOAT_EQ(values[0], 1.0f);
  EXPECT_FLOAT_EQ(values[24], 0.0f);
  EXPECT_FLOAT_EQ(values[48], -127.0f / 128);
}

}  // namespace
}  // namespace example
