// The part of the Python module that gives an allocator its plan, and tells how it was served.
#pragma once

#include <nanobind/nanobind.h>

#include "allocator.hpp"

namespace et_replay {

void define_plan(nanobind::module_& module);

// Arena, then requests and bytes of planned, reused, displaced and fallback, and the peak of the
// last; None for an allocator that serves no plan.
nanobind::object plan_figures(const Allocator& allocator);

}  // namespace et_replay
