/* values_library_test PLAIN FLOW present|absent|foreign: a module without values runs, whatever libraries there are;
 * one with values (flow_spec of module_builder.h) runs where libtessera_values is there, and is refused with one error
 * where there is none, or one of another build. From C, linked without the C++ library. */
#include <stdio.h>
#include <string.h>

#include "tessera/tessera.h"

static tessera_error error = {TESSERA_OK, "", ""};

static int holds(int condition, int line) {
  if (!condition) printf("values_library_test.c:%d does not hold (last error: %s %s)\n", line, error.id, error.message);
  return condition;
}
#define CHECK(condition) \
  if (!holds(condition, __LINE__)) return 1

static int run_plain(const char* path) {
  tessera_module* module = NULL;
  tessera_session* session = NULL;
  const float x[4] = {1, 10, 100, 1000};
  float y[4] = {0};
  const tessera_tensor input = {(void*)x, TESSERA_F32, 1, {4}}, output = {y, TESSERA_F32, 1, {4}};
  CHECK(tessera_module_load(path, NULL, &module, &error) == TESSERA_OK);
  CHECK(tessera_module_has_values(module) == 0);
  CHECK(tessera_session_create(module, NULL, &session, &error) == TESSERA_OK);
  CHECK(tessera_session_run(session, &input, 1, &output, 1, &error) == TESSERA_OK);
  CHECK(y[0] == 2 && y[1] == 30 && y[2] == 500 && y[3] == 7000);
  CHECK(tessera_session_run_values(session, NULL, 0, NULL, 0, NULL, &error) == TESSERA_INVALID_ARGUMENT);
  CHECK(strcmp(error.id, "TSR-7043") == 0);
  tessera_session_free(session);
  tessera_module_free(module);
  return 0;
}

static int run_flow(const char* path) {
  tessera_module* module = NULL;
  tessera_session* session = NULL;
  float numbers[4] = {1, 10, 100, 1000};
  const tessera_string texts[2] = {{"ab", 2}, {"", 0}};
  tessera_value x = {0}, s = {0};
  const tessera_value* inputs[2] = {&x, &s};
  tessera_value* outputs[2] = {NULL, NULL};
  x.dtype = TESSERA_F32;
  s.dtype = TESSERA_STRING;
  x.rank = s.rank = 1;
  x.dims[0] = 4;
  s.dims[0] = 2;
  x.data = numbers;
  s.data = texts;
  CHECK(tessera_module_load(path, NULL, &module, &error) == TESSERA_OK);
  CHECK(tessera_module_has_values(module) == 1);
  CHECK(tessera_session_create(module, NULL, &session, &error) == TESSERA_OK);
  CHECK(tessera_session_run_values(session, inputs, 2, outputs, 2, NULL, &error) == TESSERA_OK);
  const float* y = outputs[0]->data;
  const tessera_string* t = outputs[1]->data;
  CHECK(y[0] == 2 && y[1] == 30 && y[2] == 500 && y[3] == 7000);
  CHECK(outputs[1]->dims[0] == 2 && t[0].size == 4 && memcmp(t[0].data, "abab", 4) == 0 && t[1].size == 0);
  tessera_value_free(outputs[0], NULL);
  tessera_value_free(outputs[1], NULL);
  /* A check of the piece, which the core reads. */
  numbers[0] = -7;
  CHECK(tessera_session_run_values(session, inputs, 2, outputs, 2, NULL, &error) == TESSERA_INVALID_ARGUMENT);
  CHECK(strcmp(error.id, "TSR-7040") == 0 && strstr(error.message, "the first of 'x' is -7") != NULL);
  CHECK(outputs[0] == NULL && outputs[1] == NULL);
  tessera_session_free(session);
  tessera_module_free(module);
  return 0;
}

static int refuse_flow(const char* path, const char* expected) {
  tessera_module* module = NULL;
  CHECK(tessera_module_check(path, &error) == TESSERA_OK); /* the file itself is whole */
  CHECK(tessera_module_load(path, NULL, &module, &error) == TESSERA_UNSUPPORTED);
  CHECK(module == NULL && strcmp(error.id, "TSR-7018") == 0);
  CHECK(strstr(error.message, expected) != NULL);
  printf("%s: %s\n", error.id, error.message);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  const char* library = argv[3];
  const int refused = strcmp(library, "absent") == 0    ? refuse_flow(argv[2], "-ltessera_values")
                      : strcmp(library, "foreign") == 0 ? refuse_flow(argv[2], "of another build (0.0.0)")
                                                        : run_flow(argv[2]);
  return refused || run_plain(argv[1]);
}
