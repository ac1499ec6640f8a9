/* The public header from C, against the shared library: load a module (argument 1), run it, read an error. */
#include <stdio.h>
#include <string.h>

#include "tessera/tessera.h"

static tessera_error error = {TESSERA_OK, "", ""};

static int holds(int condition, int line) {
  if (!condition) printf("c_api_test.c:%d does not hold (last error: %s %s)\n", line, error.id, error.message);
  return condition;
}
#define CHECK(condition) \
  if (!holds(condition, __LINE__)) return 1

/* Whether a module in memory is what stands in the file. */
static int same_contents(const tessera_module* module, const char* path) {
  size_t size = 0, at = 0;
  const unsigned char* contents = tessera_module_contents(module, &size);
  FILE* file = fopen(path, "rb");
  if (!file || !contents) return 0;
  for (int byte; (byte = fgetc(file)) != EOF; ++at) {
    if (at >= size || contents[at] != byte) break;
  }
  const int whole = feof(file) && at == size;
  fclose(file);
  return whole && tessera_module_contents(NULL, &size) == NULL && size == 0;
}

int main(int argc, char** argv) {
  tessera_module* module = NULL;
  tessera_session* session = NULL;
  tessera_load_options load_options = {sizeof(load_options), 0};
  tessera_session_options session_options = {sizeof(session_options), 2};
  const float x[4] = {1, 10, 100, 1000};
  float y[4] = {0};
  tessera_tensor input = {(void*)x, TESSERA_F32, 1, {4}};
  tessera_tensor output = {y, TESSERA_F32, 1, {4}};
  if (argc != 2) return 64;

  CHECK(strlen(tessera_version()) > 0);
  CHECK(tessera_dtype_bits(TESSERA_F32) == 32 && tessera_dtype_bits(TESSERA_U4) == 4);
  CHECK(tessera_dtype_bits(TESSERA_STRING) == 0 && tessera_dtype_bits((tessera_dtype)1000) == 0);
  CHECK(strcmp(tessera_dtype_name(TESSERA_BF16), "bf16") == 0);
  CHECK(strcmp(tessera_dtype_name((tessera_dtype)0), "?") == 0);
  CHECK(tessera_default_num_threads() >= 1);

  CHECK(tessera_module_load("/nonexistent/module.so", NULL, &module, &error) == TESSERA_NOT_FOUND);
  CHECK(module == NULL && strcmp(error.id, "TSR-7001") == 0);
  CHECK(tessera_module_check(argv[1], &error) == TESSERA_OK);
  CHECK(tessera_module_load(argv[1], &load_options, &module, &error) == TESSERA_OK);
  CHECK(same_contents(module, argv[1]));
  CHECK(tessera_session_create(module, &session_options, &session, &error) == TESSERA_OK);
  CHECK(tessera_session_run(session, &input, 1, &output, 1, &error) == TESSERA_OK);
  CHECK(y[0] == 2 && y[1] == 30 && y[2] == 500 && y[3] == 7000);
  input.dtype = TESSERA_I32;
  CHECK(tessera_session_run(session, &input, 1, &output, 1, &error) == TESSERA_INVALID_ARGUMENT);
  CHECK(strcmp(error.id, "TSR-7031") == 0);
  tessera_session_free(session);
  tessera_module_free(module);
  printf("the C API works: tessera %s\n", tessera_version());
  return 0;
}
