// SPDX-License-Identifier: Apache-2.0
#include "kernels/report.h"

#include <nlohmann/json.hpp>

namespace tessera {

std::string to_json(const Report& r) {
  const Counters& c = r.counters;
  nlohmann::ordered_json findings = nlohmann::ordered_json::array();
  for (const Finding& f : r.findings)
    findings.push_back({{"check", f.check}, {"message", f.message}, {"count", f.count}});
  const nlohmann::ordered_json j = {{"kernel", r.kernel},
                                    {"instance", r.instance},
                                    {"target", r.target},
                                    {"arch", r.arch},
                                    {"card", r.card},
                                    {"config", r.config},
                                    {"dtype", r.dtype},
                                    {"exp2", r.exp2},
                                    {"isa", r.isa},
                                    {"head_dim_bucket", r.head_dim_bucket},
                                    {"threads", r.threads},
                                    {"seconds", r.seconds},
                                    {"counters",
                                     {{"blocks", c.blocks},
                                      {"mma", c.mma},
                                      {"fma", c.fma},
                                      {"exp2", c.exp2},
                                      {"barriers", c.barriers},
                                      {"tiles_skipped", c.tiles_skipped},
                                      {"tiles_full", c.tiles_full},
                                      {"tiles_masked", c.tiles_masked},
                                      {"global_load_bytes", c.global_load_bytes},
                                      {"global_store_bytes", c.global_store_bytes},
                                      {"global_sectors", c.global_sectors},
                                      {"global_sectors_ideal", c.global_sectors_ideal},
                                      {"shared_wavefronts", c.shared_wavefronts},
                                      {"shared_wavefronts_ideal", c.shared_wavefronts_ideal},
                                      {"shared_bytes", c.shared_bytes}}},
                                    {"findings", findings}};
  return j.dump();
}

}  // namespace tessera
