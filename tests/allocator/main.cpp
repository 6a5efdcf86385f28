// The tests of the native core as a plain program, so that sanitizers see it without Python.
#include "check.hpp"

int main() {
  using namespace et_replay::test;
  run_free_list_tests();
  run_handover_tests();
  run_storage_table_tests();
  run_request_list_tests();
  run_caching_tests();
  run_planned_tests();
  run_descent_tests();
  run_exact_tests();
  run_stress_tests();
  std::printf("%ld passed, %ld failed\n", score().passed, score().failed);
  return score().failed == 0 ? 0 : 1;
}
