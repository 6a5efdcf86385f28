// The part of the Python module that gives an allocator its plan, and tells how it was served.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>

#include "allocator.hpp"
#include "planned_figures.hpp"

namespace et_replay {

using PlanColumn = nanobind::ndarray<const std::int64_t, nanobind::ndim<1>, nanobind::c_contig,
                                 nanobind::device::cpu>;

void define_plan(nanobind::module_& module);

// Nothing for an allocator that serves no plan.
std::optional<PlannedFigures> figures_of(const Allocator& allocator);

// Arena, then requests and bytes of planned, reused, displaced and fallback, and the peak of the
// last; None for nothing.
nanobind::object plan_figures(const std::optional<PlannedFigures>& figures);

}  // namespace et_replay
