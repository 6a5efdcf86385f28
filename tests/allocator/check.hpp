// CHECK counts what holds and prints what does not; a test is a function whose name is a claim.
#pragma once

#include <cstdio>

namespace et_replay::test {

struct Score {
  long passed = 0;
  long failed = 0;
};

inline Score& score() {
  static Score total;
  return total;
}

inline void check(bool holds, const char* claim, const char* file, int line) {
  ++(holds ? score().passed : score().failed);
  if (!holds) std::printf("%s:%d: expected %s\n", file, line, claim);
}

void run_free_list_tests();
void run_handover_tests();
void run_storage_table_tests();
void run_request_list_tests();
void run_caching_tests();
void run_planned_tests();
void run_descent_tests();
void run_exact_tests();
void run_stress_tests();

}  // namespace et_replay::test

#define CHECK(claim) ::et_replay::test::check((claim), #claim, __FILE__, __LINE__)
