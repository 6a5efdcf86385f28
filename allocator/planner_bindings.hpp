// The planner's part of the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace et_replay {

void define_planner(nanobind::module_& module);

}  // namespace et_replay
