// Verilator harness of the trainer's top level: independent AXI bus models, driven over
// stdin and stdout by a little-endian word protocol (see `src/sim/driver.rs`).
//
// Every channel idles and back-pressures at random (seeded). A watchdog ends a call that
// makes no progress. Stdout carries the protocol only; messages go to stderr.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "Vnf_trainer.h"
#include "verilated.h"
#include "verilated_syms.h"
#if VM_TRACE
#include "verilated_fst_c.h"
#endif

namespace {

enum Op : uint32_t {
    kWriteReg = 1,
    kReadReg = 2,
    kSendTokens = 3,
    kRecvResult = 4,
    kSendState = 5,
    kRecvState = 6,
    kRun = 7,
    kStatus = 8,
    kQuit = 9,
    kStalls = 10,
    kReset = 11,
    kTrace = 12,
    kWaitIrq = 13,
    kEvents = 14,
};

constexpr uint32_t kOk = 0;
constexpr uint32_t kTimeout = 1;

struct Beat {
    uint32_t word[4];
    bool last;
};

// xorshift64*: the bench must not share a generator with what it tests.
struct Random {
    uint64_t state = 1;
    void seed(uint64_t s) { state = s * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull; if (!state) state = 1; }
    uint64_t next() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return state * 0x2545F4914F6CDD1Dull;
    }
    bool chance(uint32_t per_million) { return (next() >> 33) % 1000000u < per_million; }
};

// Watches a sequencer: when its instructions start, when its engine is ready for the next and when they
// retire, in cycles since the sample began. Reads signals of the design only, and nothing when they are not there.
struct Watch {
    const CData* start = nullptr;
    const CData* ready = nullptr;
    const CData* retire = nullptr;
    std::vector<uint32_t> times[3];
    bool open = false;

    static const CData* signal(const VerilatedScope* scope, const char* name) {
        VerilatedVar* var = scope->varFind(name);
        return var ? static_cast<const CData*>(var->datap()) : nullptr;
    }

    void bind(const char* instance) {
        const VerilatedScopeNameMap* scopes = Verilated::scopeNameMap();
        if (!scopes) return;
        for (const auto& entry : *scopes) {
            std::string name = entry.first, end = instance;
            if (name.size() < end.size() || name.compare(name.size() - end.size(), end.size(), end)) continue;
            start = signal(entry.second, "start");
            ready = signal(entry.second, "ready");
            retire = signal(entry.second, "retire");
        }
    }

    bool bound() const { return start && ready && retire; }

    void sample() {
        for (auto& t : times) t.clear();
        open = false;
    }

    void tick(uint32_t cycle) {
        if (open && *ready) {
            times[1].push_back(cycle);
            open = false;
        }
        if (*start) {
            times[0].push_back(cycle);
            open = true;
        }
        if (*retire) times[2].push_back(cycle);
    }
};

class Bench {
public:
    Bench() : top_(new Vnf_trainer) {
        const char* engines[3] = {"u_mat_sequencer", "u_vec_sequencer", "u_adam_sequencer"};
        for (int e = 0; e < 3; ++e) watch[e].bind(engines[e]);
        const VerilatedScopeNameMap* scopes = Verilated::scopeNameMap();
        if (scopes && watch[0].bound()) {
            for (const auto& entry : *scopes)
                if (std::string(entry.first).find("u_mat_sequencer") != std::string::npos)
                    sample_start_ = Watch::signal(entry.second, "sample_start");
        }
        watching_ = sample_start_ && watch[0].bound() && watch[1].bound() && watch[2].bound();
        quiet();
        reset();
    }

    void reset() {
        top_->aresetn = 0;
        for (int i = 0; i < 16; ++i) tick();
        top_->aresetn = 1;
        for (int i = 0; i < 4; ++i) tick();
    }

    void stalls(uint32_t per_million, uint32_t seed) {
        stall_ = per_million;
        random_.seed(seed);
    }

    void trace(const char* path) {
#if VM_TRACE
        Verilated::traceEverOn(true);
        trace_.reset(new VerilatedFstC);
        top_->trace(trace_.get(), 99);
        trace_->open(path);
#else
        std::fprintf(stderr, "built without tracing, %s not written\n", path);
#endif
    }

    // Address and data go out together, address first, or data first, at random.
    uint32_t write_reg(uint32_t addr, uint32_t data, uint32_t strobe, uint32_t* response) {
        uint64_t aw_delay = random_.next() % 4 * (stall_ != 0);
        uint64_t w_delay = random_.next() % 4 * (stall_ != 0);
        bool aw_done = false, w_done = false;
        for (uint64_t i = 0; i < kRegisterLimit; ++i) {
            top_->s_axil_awvalid = !aw_done && i >= aw_delay;
            top_->s_axil_awaddr = addr;
            top_->s_axil_wvalid = !w_done && i >= w_delay;
            top_->s_axil_wdata = data;
            top_->s_axil_wstrb = strobe;
            top_->s_axil_bready = aw_done && w_done && !random_.chance(stall_);
            top_->eval();
            bool aw = top_->s_axil_awvalid && top_->s_axil_awready;
            bool w = top_->s_axil_wvalid && top_->s_axil_wready;
            bool b = top_->s_axil_bvalid && top_->s_axil_bready;
            uint32_t resp = top_->s_axil_bresp;
            tick();
            aw_done |= aw;
            w_done |= w;
            if (b) {
                quiet_axil();
                *response = resp;
                return kOk;
            }
        }
        quiet_axil();
        return kTimeout;
    }

    uint32_t read_reg(uint32_t addr, uint32_t* data, uint32_t* response) {
        bool ar_done = false;
        for (uint64_t i = 0; i < kRegisterLimit; ++i) {
            top_->s_axil_arvalid = !ar_done;
            top_->s_axil_araddr = addr;
            top_->s_axil_rready = !random_.chance(stall_);
            top_->eval();
            bool ar = top_->s_axil_arvalid && top_->s_axil_arready;
            bool r = top_->s_axil_rvalid && top_->s_axil_rready;
            uint32_t d = top_->s_axil_rdata, resp = top_->s_axil_rresp;
            tick();
            ar_done |= ar;
            if (r) {
                quiet_axil();
                *data = d;
                *response = resp;
                return kOk;
            }
        }
        quiet_axil();
        return kTimeout;
    }

    void run(uint64_t cycles) {
        for (uint64_t i = 0; i < cycles; ++i) tick();
    }

    // Runs until a whole packet has come out of `queue`; `limit` bounds idle cycles and beats.
    bool wait_packet(std::deque<Beat>& queue, uint64_t* packets, uint64_t limit) {
        uint64_t idle = 0;
        size_t before = queue.size();
        while (*packets == 0) {
            tick();
            if (queue.size() > limit) return false;
            if (queue.size() != before) {
                before = queue.size();
                idle = 0;
            } else if (++idle > limit) {
                return false;
            }
        }
        return true;
    }

    bool wait_irq(uint64_t limit) {
        for (uint64_t i = 0; i < limit; ++i) {
            if (top_->irq) return true;
            tick();
        }
        return false;
    }

    void tick() {
        // Sources: valid stays up until taken; a new beat may idle first.
        if (!token_live_ && !tokens.empty() && !random_.chance(stall_)) token_live_ = true;
        top_->s_axis_token_tvalid = token_live_;
        if (token_live_) {
            top_->s_axis_token_tdata = tokens.front().word[0];
            top_->s_axis_token_tkeep = 0xF;
            top_->s_axis_token_tlast = tokens.front().last;
        } else {
            top_->s_axis_token_tdata = 0xDEADBEEF;
            top_->s_axis_token_tlast = random_.next() & 1;
        }
        if (!state_live_ && !state_in.empty() && !random_.chance(stall_)) state_live_ = true;
        top_->s_axis_weight_tvalid = state_live_;
        for (int i = 0; i < 4; ++i) {
            top_->s_axis_weight_tdata[i] = state_live_ ? state_in.front().word[i] : 0xDEADBEEF;
        }
        top_->s_axis_weight_tkeep = 0xFFFF;
        top_->s_axis_weight_tlast = state_live_ && state_in.front().last;
        top_->m_axis_result_tready = !random_.chance(stall_);
        top_->m_axis_weight_tready = !random_.chance(stall_);
        top_->aclk = 0;
        top_->eval();
        dump();

        if (watching_) {
            if (*sample_start_) {
                sample_cycle_ = cycles;
                for (auto& w : watch) w.sample();
            }
            for (auto& w : watch) w.tick(uint32_t(cycles - sample_cycle_));
        }

        bool token = top_->s_axis_token_tvalid && top_->s_axis_token_tready;
        bool state = top_->s_axis_weight_tvalid && top_->s_axis_weight_tready;
        stalled += (top_->s_axis_token_tvalid && !top_->s_axis_token_tready) +
                   (!top_->s_axis_token_tvalid && !tokens.empty()) +
                   (top_->s_axis_weight_tvalid && !top_->s_axis_weight_tready) +
                   (!top_->s_axis_weight_tvalid && !state_in.empty()) +
                   (top_->m_axis_result_tvalid && !top_->m_axis_result_tready) +
                   (top_->m_axis_weight_tvalid && !top_->m_axis_weight_tready);
        if (top_->m_axis_result_tvalid && top_->m_axis_result_tready) {
            Beat b{{top_->m_axis_result_tdata, 0, 0, 0}, (bool)top_->m_axis_result_tlast};
            if (top_->m_axis_result_tkeep != 0xF) violation("m_axis_result_tkeep is not all ones");
            result.push_back(b);
            result_packets += b.last;
        }
        if (top_->m_axis_weight_tvalid && top_->m_axis_weight_tready) {
            Beat b{};
            for (int i = 0; i < 4; ++i) b.word[i] = top_->m_axis_weight_tdata[i];
            b.last = top_->m_axis_weight_tlast;
            state_out.push_back(b);
            state_packets += b.last;
        }
        check_hold();

        top_->aclk = 1;
        top_->eval();
        dump();
        ++cycles;
        if (token) {
            tokens.pop_front();
            token_live_ = false;
        }
        if (state) {
            state_in.pop_front();
            state_live_ = false;
        }
    }

    void finish() {
        top_->final();
#if VM_TRACE
        if (trace_) trace_->close();
#endif
    }

    std::deque<Beat> tokens, state_in, result, state_out;
    Watch watch[3];
    uint64_t result_packets = 0, state_packets = 0, cycles = 0, stalled = 0, violations = 0;

private:
    static constexpr uint64_t kRegisterLimit = 10000;

    void violation(const char* what) {
        ++violations;
        if (violations < 10) std::fprintf(stderr, "cycle %llu: %s\n", (unsigned long long)cycles, what);
    }

    // A master may not take back valid or change data while the slave is not ready.
    void check_hold() {
        if (held_result_ && top_->aresetn) {
            if (!top_->m_axis_result_tvalid) violation("m_axis_result_tvalid fell before tready");
            else if (top_->m_axis_result_tdata != held_result_data_) violation("m_axis_result_tdata changed while stalled");
        }
        held_result_ = top_->m_axis_result_tvalid && !top_->m_axis_result_tready;
        held_result_data_ = top_->m_axis_result_tdata;
        if (held_state_ && top_->aresetn) {
            bool same = true;
            for (int i = 0; i < 4; ++i) same &= top_->m_axis_weight_tdata[i] == held_state_data_[i];
            if (!top_->m_axis_weight_tvalid) violation("m_axis_weight_tvalid fell before tready");
            else if (!same) violation("m_axis_weight_tdata changed while stalled");
        }
        held_state_ = top_->m_axis_weight_tvalid && !top_->m_axis_weight_tready;
        for (int i = 0; i < 4; ++i) held_state_data_[i] = top_->m_axis_weight_tdata[i];
    }

    void quiet_axil() {
        top_->s_axil_awvalid = top_->s_axil_wvalid = top_->s_axil_bready = 0;
        top_->s_axil_arvalid = top_->s_axil_rready = 0;
    }

    void quiet() {
        quiet_axil();
        top_->aclk = 0;
        top_->s_axis_token_tvalid = 0;
        top_->s_axis_weight_tvalid = 0;
    }

    void dump() {
#if VM_TRACE
        if (trace_) trace_->dump(time_++);
#endif
    }

    std::unique_ptr<Vnf_trainer> top_;
#if VM_TRACE
    std::unique_ptr<VerilatedFstC> trace_;
    uint64_t time_ = 0;
#endif
    const CData* sample_start_ = nullptr;
    uint64_t sample_cycle_ = 0;
    bool watching_ = false;
    Random random_;
    uint32_t stall_ = 0;
    bool token_live_ = false, state_live_ = false;
    bool held_result_ = false, held_state_ = false;
    uint32_t held_result_data_ = 0, held_state_data_[4] = {};
};

bool read_words(uint32_t* words, size_t n) { return std::fread(words, 4, n, stdin) == n; }

void write_words(const uint32_t* words, size_t n) { std::fwrite(words, 4, n, stdout); }

void reply(std::initializer_list<uint32_t> words) {
    write_words(words.begin(), words.size());
    std::fflush(stdout);
}

// Sends one packet taken from `queue` as [ok, beats, words...].
void send_packet(std::deque<Beat>& queue, uint64_t* packets, int words_per_beat) {
    std::vector<uint32_t> out{kOk, 0};
    while (!queue.empty()) {
        Beat b = queue.front();
        queue.pop_front();
        for (int i = 0; i < words_per_beat; ++i) out.push_back(b.word[i]);
        ++out[1];
        if (b.last) break;
    }
    --*packets;
    write_words(out.data(), out.size());
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    Bench bench;
    uint32_t op;
    while (read_words(&op, 1)) {
        uint32_t a[3];
        switch (op) {
        case kWriteReg: {
            if (!read_words(a, 3)) return 3;
            uint32_t response = 0;
            uint32_t status = bench.write_reg(a[0], a[1], a[2], &response);
            reply({status, response});
            break;
        }
        case kReadReg: {
            if (!read_words(a, 1)) return 3;
            uint32_t data = 0, response = 0;
            uint32_t status = bench.read_reg(a[0], &data, &response);
            reply({status, response, data});
            break;
        }
        case kSendTokens: {
            if (!read_words(a, 1)) return 3;
            std::vector<uint32_t> words(a[0]);
            if (!read_words(words.data(), words.size())) return 3;
            for (size_t i = 0; i < words.size(); ++i)
                bench.tokens.push_back(Beat{{words[i], 0, 0, 0}, i + 1 == words.size()});
            reply({kOk});
            break;
        }
        case kRecvResult:
            if (!read_words(a, 1)) return 3;
            if (bench.wait_packet(bench.result, &bench.result_packets, a[0]))
                send_packet(bench.result, &bench.result_packets, 1);
            else
                reply({kTimeout, 0});
            break;
        case kSendState: {
            if (!read_words(a, 1)) return 3;
            std::vector<uint32_t> words(size_t(a[0]) * 4);
            if (!read_words(words.data(), words.size())) return 3;
            for (size_t i = 0; i < a[0]; ++i) {
                Beat b{};
                std::memcpy(b.word, &words[i * 4], 16);
                b.last = i + 1 == a[0];
                bench.state_in.push_back(b);
            }
            reply({kOk});
            break;
        }
        case kRecvState:
            if (!read_words(a, 1)) return 3;
            if (bench.wait_packet(bench.state_out, &bench.state_packets, a[0]))
                send_packet(bench.state_out, &bench.state_packets, 4);
            else
                reply({kTimeout, 0});
            break;
        case kRun:
            if (!read_words(a, 1)) return 3;
            bench.run(a[0]);
            reply({kOk});
            break;
        case kWaitIrq:
            if (!read_words(a, 1)) return 3;
            reply({bench.wait_irq(a[0]) ? kOk : kTimeout});
            break;
        case kStatus:
            reply({kOk, (uint32_t)bench.cycles, (uint32_t)(bench.cycles >> 32), (uint32_t)bench.stalled,
                   (uint32_t)(bench.stalled >> 32), (uint32_t)bench.violations});
            break;
        case kEvents: {
            std::vector<uint32_t> out{kOk};
            for (auto& w : bench.watch) {
                for (auto& t : w.times) {
                    out.push_back(uint32_t(t.size()));
                    out.insert(out.end(), t.begin(), t.end());
                }
            }
            write_words(out.data(), out.size());
            std::fflush(stdout);
            break;
        }
        case kStalls:
            if (!read_words(a, 2)) return 3;
            bench.stalls(a[0], a[1]);
            reply({kOk});
            break;
        case kReset:
            bench.reset();
            reply({kOk});
            break;
        case kTrace: {
            if (!read_words(a, 1) || a[0] > 4096) return 3;
            std::vector<char> path(a[0] + 1);
            if (std::fread(path.data(), 1, a[0], stdin) != a[0]) return 3;
            bench.trace(path.data());
            reply({kOk});
            break;
        }
        case kQuit:
            bench.finish();
            reply({kOk});
            return 0;
        default:
            std::fprintf(stderr, "unknown request %u\n", op);
            return 3;
        }
    }
    bench.finish();
    return 0;
}
