// The part of the Python module that installs the allocator of a real device, and asks it.
#pragma once

#include <nanobind/nanobind.h>

namespace et_replay {

void define_pluggable(nanobind::module_& module);

}  // namespace et_replay
