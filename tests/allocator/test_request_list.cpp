// RequestList: which request of the list one that comes is.
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.hpp"
#include "request_list.hpp"

namespace et_replay::test {
namespace {

constexpr std::int64_t none = -1;

void gives_nothing_before_anything_is_expected() {
  RequestList empty;
  CHECK(empty.size() == 0);
  CHECK(empty.take(512, 0) == none);
  RequestList list({{7, 512, 0}});
  CHECK(list.size() == 1);
  CHECK(list.take(512, 0) == none);
}

void finds_requests_in_whatever_order_they_come() {
  RequestList list({{1, 100, 0}, {2, 200, 0}, {3, 300, 0}});
  list.expect(0, 3);
  CHECK(list.take(300, 0) == 3);
  CHECK(list.take(100, 0) == 1);
  CHECK(list.take(200, 0) == 2);
  CHECK(list.take(200, 0) == none);
}

void gives_the_first_of_a_size_first_and_each_once() {
  RequestList list({{5, 100, 0}, {9, 200, 0}, {4, 100, 0}});
  list.expect(0, 3);
  CHECK(list.take(100, 0) == 5);
  CHECK(list.take(100, 0) == 4);
  CHECK(list.take(100, 0) == none);
  CHECK(list.take(200, 0) == 9);
}

void tells_sizes_to_the_byte_and_streams_apart() {
  RequestList list({{1, 512, 0}, {2, 512, 8}});
  list.expect(0, 2);
  CHECK(list.take(511, 0) == none);
  CHECK(list.take(513, 0) == none);
  CHECK(list.take(512, 9) == none);
  CHECK(list.take(512, 8) == 2);
  CHECK(list.take(512, 8) == none);
  CHECK(list.take(512, 0) == 1);
}

void knows_only_what_is_near() {
  RequestList list({{1, 100, 0}, {2, 100, 0}, {3, 100, 0}, {4, 100, 0}});
  list.expect(1, 3);
  CHECK(list.take(100, 0) == 2);
  CHECK(list.take(100, 0) == 3);
  CHECK(list.take(100, 0) == none);
  list.expect(2, 2);
  CHECK(list.take(100, 0) == none);
}

void knows_nothing_beyond_its_end() {
  RequestList list({{1, 100, 0}, {2, 100, 0}});
  list.expect(1, 50);
  CHECK(list.take(100, 0) == 2);
  CHECK(list.take(100, 0) == none);
  list.expect(2, 3);
  CHECK(list.take(100, 0) == none);
  list.expect(40, 50);
  CHECK(list.take(100, 0) == none);
  list.expect(2, 1);
  CHECK(list.take(100, 0) == none);
}

void forgets_what_came_when_it_is_expected_again() {
  RequestList list({{1, 100, 0}, {2, 100, 0}, {3, 300, 0}});
  list.expect(0, 2);
  CHECK(list.take(100, 0) == 1);
  CHECK(list.take(100, 0) == 2);
  list.expect(2, 3);
  CHECK(list.take(100, 0) == none);
  CHECK(list.take(300, 0) == 3);
  list.expect(0, 2);
  CHECK(list.take(300, 0) == none);
  CHECK(list.take(100, 0) == 1);
  list.expect(0, 2);
  CHECK(list.take(100, 0) == 1);
}

// Rows 0, 1, ... of stream 0, their storages numbered so.
RequestList followed(const std::vector<Bytes>& sizes, std::vector<std::size_t> begins = {0},
                     bool marked = true) {
  std::vector<PlannedRequest> rows;
  for (const Bytes size : sizes) {
    rows.push_back({static_cast<std::int64_t>(rows.size()), size < 0 ? 1 : size, 0, size < 0});
  }
  return RequestList(std::move(rows), std::move(begins), marked);
}

constexpr Bytes any = -1;  // a row whose size varies

// What a list gives for requests of stream 0, one after the other.
bool gives(RequestList& list, const std::vector<Bytes>& sizes,
           const std::vector<std::int64_t>& storages) {
  std::vector<std::int64_t> given;
  for (const Bytes size : sizes) given.push_back(list.take(size, 0));
  return given == storages;
}

void follows_from_the_first_row_and_repeats_the_last_iteration() {
  RequestList list = followed({10, 20, 30, 40}, {0, 2}, false);
  CHECK(gives(list, {10, 20, 30, 40, 30, 40, 30, 40}, {0, 1, 2, 3, 2, 3, 2, 3}));
  list.begin_iteration(0);
  CHECK(gives(list, {10, 30}, {none, 2}));
  CHECK(list.expected() == 2);
}

void begins_iterations_where_it_is_said() {
  RequestList list = followed({10, 20, 30, 40}, {0, 2});
  CHECK(list.expected() == 2);
  CHECK(gives(list, {10}, {0}));
  list.begin_iteration(1);
  CHECK(gives(list, {30, 40, 30}, {2, 3, none}));
  list.begin_iteration(7);
  CHECK(gives(list, {30, 20, 40}, {2, none, 3}));
  list.begin_iteration(0);
  CHECK(gives(list, {10, 20, 30}, {0, 1, none}));
}

void tolerates_requests_that_lack_are_new_or_change_places() {
  RequestList list = followed({10, 20, 30, 40, 50, 60});
  CHECK(gives(list, {10, 30, 40, 50}, {0, 2, 3, 4}));
  list.begin_iteration(1);
  CHECK(gives(list, {10, 77, 20, 88, 30}, {0, none, 1, none, 2}));
  list.begin_iteration(2);
  CHECK(gives(list, {20, 10, 30, 50, 40, 60}, {1, 0, 2, 4, 3, 5}));
}

void opens_the_row_that_a_stranger_of_its_size_took() {
  RequestList list = followed({10, 20, 30, 40});
  CHECK(gives(list, {30, 10, 20, 30, 40}, {2, 0, 1, 2, 3}));
}

void gives_rows_that_vary_to_any_size_in_their_place() {
  RequestList list = followed({10, any, 20, any, any, 30});
  CHECK(gives(list, {10, 99, 20, 5, 1, 30}, {0, 1, 2, 3, 4, 5}));
  list.begin_iteration(1);
  CHECK(gives(list, {10, 20, 30}, {0, 2, 5}));
  list.begin_iteration(2);
  CHECK(gives(list, {99, 10, 98, 97}, {none, 0, 1, none}));
}

void follows_each_stream_ahead_of_others() {
  RequestList list({{0, 10, 0}, {1, 10, 5}, {2, 20, 0}, {3, 20, 5}}, {0}, true);
  CHECK(list.take(10, 5) == 1);
  CHECK(list.take(20, 5) == 3);
  CHECK(list.take(10, 0) == 0);
  CHECK(list.take(20, 0) == 2);
}

void finds_its_place_by_four_requests_in_a_row() {
  std::vector<Bytes> sizes;
  for (Bytes size = 1; size <= 300; ++size) sizes.push_back(size);
  RequestList list = followed(sizes);
  CHECK(gives(list, {1, 2, 201, 202, 203, 204, 205}, {0, 1, none, none, none, 203, 204}));
  CHECK(list.resynchronisations() == 1);
  const std::uint32_t turn = list.turn();
  CHECK(gives(list, {11, 12, 13, 14, 15}, {none, none, none, 13, 14}));
  CHECK(list.resynchronisations() == 2);
  CHECK(list.turn() != turn);
}

void finds_what_comes_between_others_further_on() {
  std::vector<Bytes> sizes;
  for (Bytes size = 1; size <= 300; ++size) sizes.push_back(size);
  RequestList list = followed(sizes);
  CHECK(gives(list, {1, 101, 1000, 104, 1000, 106, 1000, 109, 111},
              {0, none, none, none, none, none, none, 108, 110}));
}

void refuses_iterations_that_do_not_follow_one_another() {
  for (const std::vector<std::size_t>& begins :
       {std::vector<std::size_t>{}, {1}, {0, 3}, {0, 2, 1}}) {
    bool refused = false;
    try {
      followed({10, 20}, begins);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    CHECK(refused);
  }
  RequestList empty = followed({}, {0});
  CHECK(gives(empty, {10}, {none}));
}

}  // namespace

void run_request_list_tests() {
  follows_from_the_first_row_and_repeats_the_last_iteration();
  begins_iterations_where_it_is_said();
  tolerates_requests_that_lack_are_new_or_change_places();
  opens_the_row_that_a_stranger_of_its_size_took();
  gives_rows_that_vary_to_any_size_in_their_place();
  follows_each_stream_ahead_of_others();
  finds_its_place_by_four_requests_in_a_row();
  finds_what_comes_between_others_further_on();
  refuses_iterations_that_do_not_follow_one_another();
  gives_nothing_before_anything_is_expected();
  finds_requests_in_whatever_order_they_come();
  gives_the_first_of_a_size_first_and_each_once();
  tells_sizes_to_the_byte_and_streams_apart();
  knows_only_what_is_near();
  knows_nothing_beyond_its_end();
  forgets_what_came_when_it_is_expected_again();
}

}  // namespace et_replay::test
