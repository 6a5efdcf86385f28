// Many short searches, of which each one takes from those before it which slots were too full.
// They take turns: at the target, in case it can be reached at once, and between it and the best
// arena so far, which sinks step by step.
#include "exact.hpp"

#include <algorithm>
#include <iterator>

#include "backjumping.hpp"

namespace et_replay::planner {

namespace {

struct Arm {
  Rule rule;
  Rank rank;
};

// The eleven instances of minimalloc fall to the first five within a second, most to the first.
constexpr Arm arms[] = {
    {Rule::lowest_failing, Rank::width},      {Rule::failing, Rank::load_and_width},
    {Rule::lowest_loaded, Rank::load_and_area}, {Rule::tightest, Rank::area},
    {Rule::lowest_high, Rank::width},         {Rule::failing, Rank::width},
    {Rule::tightest, Rank::load_and_width},
};

constexpr Arm sure_arms[] = {
    {Rule::lowest_failing, Rank::width},
    {Rule::lowest_failing, Rank::load_and_width},
    {Rule::failing, Rank::width},
};

constexpr std::int64_t work_per_step = 160;
constexpr std::int64_t first_nodes_per_item = 2;
constexpr std::int64_t nodes_growth = 16;     // each round has a sixteenth more nodes
constexpr std::int64_t noise = 4;             // of the ranks, from the second round on
constexpr std::int64_t failures_decay = 16;   // each search forgets a sixteenth
constexpr int patience = 80;  // so many fails and the step is halved

}  // namespace

class ExactSearch::Attempts {
 public:
  explicit Attempts(const Part& part)
      : part_(part),
        packing_(part),
        failures_at_goal_(part.load.size(), 0),
        failures_at_step_(part.load.size(), 0),
        goal_(std::max(part.target, part.lower_bound)),
        short_nodes_(static_cast<std::int64_t>(part.items.size()) * 3 / 2),
        nodes_(static_cast<std::int64_t>(part.items.size()) * first_nodes_per_item) {
    result_.proven_bound = part.lower_bound;
  }

  SearchResult improve(Bytes incumbent, Budget& budget) {
    budget_ = &budget;
    best_ = std::min(best_, incumbent);
    result_.offsets.reset();
    for (; !done(); turn_ = (turn_ + 1) % std::size(arms)) {
      turn(arms[turn_], noise_);
      if (turn_ + 1 < std::size(arms)) continue;
      noise_ = noise;
      nodes_ += nodes_ / nodes_growth + 1;
    }
    return result_;
  }

 private:
  bool done() const { return goal_ >= best_ || budget_->spent(); }

  void turn(const Arm& arm, std::int64_t rank_noise) {
    attempt(arm, rank_noise, goal_, nodes_, failures_at_goal_);
    for (const Arm& sure : sure_arms) {
      if (step() > goal_) attempt(sure, noise, step(), short_nodes_, failures_at_step_);
    }
    if (step() > goal_) attempt(arm, rank_noise, step(), nodes_, failures_at_step_);
  }

  // From halfway between the goal and the best arena on, the nearer to the best the more often
  // that has failed.
  Bytes step() const {
    const Bytes highest = best_ - goal_ > goal_ ? 2 * goal_ : best_ - 1;
    return highest - ((highest - goal_) >> halvings_);
  }

  bool attempt(const Arm& arm, std::int64_t rank_noise, Bytes capacity, std::int64_t nodes,
               std::vector<std::int64_t>& failures) {
    if (done()) return false;
    ranks_ = ranks_of(part_, arm.rank, rank_noise, random_);
    for (std::int64_t& failed : failures) failed -= failed / failures_decay;
    packing_.failures().swap(failures);
    Backjumping search(packing_, arm.rule, ranks_, budget_->stop);
    const std::int64_t before = packing_.work();
    const Outcome outcome = search.run(capacity, nodes, budget_->steps * work_per_step);
    budget_->steps -= (packing_.work() - before) / work_per_step + 1;
    packing_.failures().swap(failures);
    learn(outcome, capacity);
    return outcome == Outcome::found;
  }

  void learn(Outcome outcome, Bytes capacity) {
    if (outcome == Outcome::found) {
      best_ = arena_of(part_, packing_.offsets());
      result_.offsets = packing_.offsets();
      halvings_ = std::max(halvings_ - 1, 1);
      fails_ = 0;
    } else if (outcome == Outcome::impossible) {
      result_.proven_bound = std::max(result_.proven_bound, capacity + 1);
      goal_ = std::max(goal_, result_.proven_bound);
    } else if (capacity > goal_ && ++fails_ % patience == 0) {
      halvings_ = std::min(halvings_ + 1, 5);
    }
  }

  const Part& part_;
  Budget* budget_ = nullptr;  // of the call in progress
  PartialPacking packing_;
  Random random_{1};
  std::vector<PartialPacking::Index> ranks_;
  std::vector<std::int64_t> failures_at_goal_, failures_at_step_;
  SearchResult result_;
  Bytes best_ = largest_arena;  // an arena is looked for that is smaller
  Bytes goal_;  // and need not be smaller than this
  const std::int64_t short_nodes_;
  std::int64_t nodes_;  // of one search
  std::size_t turn_ = 0;        // whose turn it is
  std::int64_t noise_ = 0;
  int halvings_ = 1;
  int fails_ = 0;  // at steps since the last success
};

ExactSearch::ExactSearch(const Part& part) : attempts_(std::make_unique<Attempts>(part)) {}

ExactSearch::~ExactSearch() = default;

SearchResult ExactSearch::improve(Bytes incumbent, Budget& budget) {
  return attempts_->improve(incumbent, budget);
}

SearchResult search(const Part& part, Bytes incumbent, Budget& budget) {
  if (part.items.empty()) return {std::nullopt, part.lower_bound};
  return ExactSearch(part).improve(incumbent, budget);
}

}  // namespace et_replay::planner
