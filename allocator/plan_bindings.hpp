// The part of the Python module that gives an allocator its plan, and tells how it was served.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <vector>

#include "allocator.hpp"
#include "planned_figures.hpp"
#include "request_list.hpp"

namespace et_replay {

using PlanColumn = nanobind::ndarray<const std::int64_t, nanobind::ndim<1>, nanobind::c_contig,
                                 nanobind::device::cpu>;

using FlagColumn = nanobind::ndarray<const bool, nanobind::ndim<1>, nanobind::c_contig,
                                     nanobind::device::cpu>;

void define_plan(nanobind::module_& module);

// The requests of a plan, a row each. Throw std::invalid_argument where columns differ in length.
RequestList expected_list(const PlanColumn& storage, const PlanColumn& size,
                          const PlanColumn& stream);
RequestList followed_list(const PlanColumn& storage, const PlanColumn& size,
                          const PlanColumn& stream, const FlagColumn& varies,
                          const std::vector<std::size_t>& begins, bool marked);

// Nothing for an allocator that serves no plan.
std::optional<PlannedFigures> figures_of(const Allocator& allocator);

// Arena, then requests and bytes of planned, reused, displaced and fallback, and the peak of the
// last; None for nothing.
nanobind::object plan_figures(const std::optional<PlannedFigures>& figures);

// The fields in their order, served ones as requests and bytes.
nanobind::tuple iteration_figures(const IterationFigures& figures);

}  // namespace et_replay
