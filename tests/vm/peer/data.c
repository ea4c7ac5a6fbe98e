#include "data.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

void fill_with_seed(uint8_t* bytes, size_t length, uint64_t seed) {
  for (size_t i = 0; i < length; ++i) bytes[i] = (uint8_t)(seed + 131 * i + (i >> 8));
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = (char)tolower((unsigned char)c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_hex(const char* text, struct data* data) {
  size_t digits = strlen(text);
  if (digits == 0 || digits % 2 != 0) return false;
  data->length = digits / 2;
  data->bytes = calloc(1, data->length);
  if (data->bytes == NULL) return false;
  for (size_t i = 0; i < data->length; ++i) {
    int high = hex_digit(text[2 * i]);
    int low = hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) {
      free(data->bytes);
      return false;
    }
    data->bytes[i] = (uint8_t)(high << 4 | low);
  }
  return true;
}

bool parse_data(const char* text, struct data* data) {
  memset(data, 0, sizeof *data);
  if (strncmp(text, "hex:", 4) == 0) return parse_hex(text + 4, data);

  char* end;
  bool any = strncmp(text, "any:", 4) == 0;
  if (!any && strncmp(text, "seed:", 5) != 0) return false;
  errno = 0;
  unsigned long long length = strtoull(text + (any ? 4 : 5), &end, 0);
  if (errno != 0 || length == 0 || length > UINT32_MAX || *end != (any ? '\0' : ':')) return false;
  int64_t seed = 0;
  if (!any && !parse_int(end + 1, &seed)) return false;
  data->length = length;
  data->any = any;
  data->bytes = calloc(1, length);
  if (data->bytes == NULL) return false;
  if (!any) fill_with_seed(data->bytes, length, (uint64_t)seed);
  return true;
}

size_t first_difference(const uint8_t* a, const uint8_t* b, size_t length) {
  size_t i = 0;
  while (i < length && a[i] == b[i]) ++i;
  return i;
}
