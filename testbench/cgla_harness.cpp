// SPDX-License-Identifier: Apache-2.0
// Drives nf_cgla: AXI4-Lite host, one memory with a read port per group and a write port.
//
// Every read port transfers at most one 16-byte beat per cycle and, by a seeded coin, only in a
// given share of the cycles; the first beat of a burst comes no earlier than `latency` cycles
// after its address. A cycle in which the array is not ready is lost, as on a real port.
//
// Requests on stdin and replies on stdout are little-endian 32-bit words.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "Vnf_cgla.h"
#include "verilated.h"

namespace {

constexpr int kPorts = @PORTS@;

Vnf_cgla* top;
std::vector<uint8_t> memory;
uint64_t cycle = 0;
uint32_t violations = 0;
uint32_t latency = 100;
uint32_t share = 52429;      // of 65536 cycles a read port may transfer in
uint32_t busy_share = 6554;  // of 65536 cycles an address or write channel is not ready in
uint64_t random_state = 1;

uint32_t random16() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return static_cast<uint32_t>(random_state >> 40) & 0xffff;
}

void violation(const char* what) {
    if (violations++ < 10) fprintf(stderr, "cycle %llu: %s\n", (unsigned long long)cycle, what);
}

struct Burst {
    uint64_t address;
    uint32_t beats;
    uint64_t ready_at;
};

// Values the array drives and sees on one read port.
struct ReadPort {
    std::deque<Burst> bursts;
    bool arready = false;
    bool rvalid = false;
    bool held = false;
    uint64_t held_address = 0;
};
ReadPort ports[kPorts];

struct Write {
    uint64_t address;
    uint32_t data[4];
    uint32_t strobe;
};
std::deque<uint64_t> write_addresses;
std::deque<Write> write_data;
// When a response is due, and what it says.
std::deque<std::pair<uint64_t, int>> responses;
bool awready = false;
bool wready = false;
bool bvalid = false;

struct Pins {
    CData* arready;
    CData* rvalid;
    CData* rlast;
    CData* rresp;
    uint32_t* rdata;
    const CData* arvalid;
    const CData* rready;
    const CData* arlen;
    const QData* araddr;
};
Pins pins[kPorts];

void bind_ports() {
@BINDINGS@
}

void tick() {
    // Inputs of this cycle.
    for (int p = 0; p < kPorts; ++p) {
        ReadPort& port = ports[p];
        port.arready = port.bursts.size() < 32 && random16() >= busy_share;
        if (!port.rvalid && !port.bursts.empty() && cycle >= port.bursts.front().ready_at)
            port.rvalid = random16() < share;
        *pins[p].arready = port.arready;
        *pins[p].rvalid = port.rvalid;
        if (port.rvalid) {
            const Burst& burst = port.bursts.front();
            // Outside the memory there is an error response, as on a real interconnect.
            const bool inside = burst.address + 16 <= memory.size();
            if (inside) memcpy(pins[p].rdata, &memory[burst.address], 16);
            *pins[p].rresp = inside ? 0 : 2;
            *pins[p].rlast = burst.beats == 1;
        }
    }
    awready = random16() >= busy_share;
    wready = random16() >= busy_share;
    bvalid = !responses.empty() && cycle >= responses.front().first;
    top->m_axi_w_awready = awready;
    top->m_axi_w_wready = wready;
    top->m_axi_w_bvalid = bvalid;
    top->m_axi_w_bresp = bvalid ? responses.front().second : 0;
    top->eval();

    // Transfers of this cycle.
    for (int p = 0; p < kPorts; ++p) {
        ReadPort& port = ports[p];
        const bool arvalid = *pins[p].arvalid;
        const uint64_t address = *pins[p].araddr;
        const uint32_t beats = *pins[p].arlen + 1;
        if (port.held && (!arvalid || address != port.held_address))
            violation("a read address changed before it was accepted");
        port.held = arvalid && !port.arready;
        port.held_address = address;
        if (arvalid && port.arready) {
            if (address / 4096 != (address + 16 * beats - 1) / 4096)
                violation("a read burst crosses 4 KiB");
            if (address % 16) violation("a read address is not aligned");
            port.bursts.push_back({address, beats, cycle + latency});
        }
        if (port.rvalid && *pins[p].rready) {
            Burst& burst = port.bursts.front();
            burst.address += 16;
            if (--burst.beats == 0) port.bursts.pop_front();
            port.rvalid = false;
        }
    }
    if (top->m_axi_w_awvalid && awready) {
        if (top->m_axi_w_awaddr % 16) violation("a write address is not aligned");
        write_addresses.push_back(top->m_axi_w_awaddr);
    }
    if (top->m_axi_w_wvalid && wready) {
        Write write = {};
        for (int i = 0; i < 4; ++i) write.data[i] = top->m_axi_w_wdata[i];
        write.strobe = top->m_axi_w_wstrb;
        if (!top->m_axi_w_wlast) violation("a single-beat write without last");
        write_data.push_back(write);
    }
    if (bvalid && top->m_axi_w_bready) responses.pop_front();
    while (!write_addresses.empty() && !write_data.empty()) {
        const uint64_t address = write_addresses.front();
        const Write& write = write_data.front();
        const bool inside = address + 16 <= memory.size();
        if (inside) {
            const uint8_t* bytes = reinterpret_cast<const uint8_t*>(write.data);
            for (int i = 0; i < 16; ++i)
                if (write.strobe >> i & 1) memory[address + i] = bytes[i];
        }
        write_addresses.pop_front();
        write_data.pop_front();
        responses.push_back({cycle + latency / 2, inside ? 0 : 2});
    }
    top->aclk = 1;
    top->eval();
    top->aclk = 0;
    top->eval();
    ++cycle;
}

bool write_register(uint32_t address, uint32_t value) {
    top->s_axil_awaddr = address;
    top->s_axil_awvalid = 1;
    top->s_axil_wdata = value;
    top->s_axil_wstrb = 15;
    top->s_axil_wvalid = 1;
    top->s_axil_bready = 1;
    for (int wait = 0; wait < 1000; ++wait) {
        top->eval();
        const bool address_taken = top->s_axil_awvalid && top->s_axil_awready;
        const bool data_taken = top->s_axil_wvalid && top->s_axil_wready;
        const bool answered = top->s_axil_bvalid;
        const int response = top->s_axil_bresp;
        tick();
        if (address_taken) top->s_axil_awvalid = 0;
        if (data_taken) top->s_axil_wvalid = 0;
        if (answered) return response == 0;
    }
    return false;
}

bool read_register(uint32_t address, uint32_t* value) {
    top->s_axil_araddr = address;
    top->s_axil_arvalid = 1;
    top->s_axil_rready = 1;
    bool taken = false;
    for (int wait = 0; wait < 1000; ++wait) {
        top->eval();
        if (taken && top->s_axil_rvalid) {
            *value = top->s_axil_rdata;
            const bool fine = top->s_axil_rresp == 0;
            tick();
            return fine;
        }
        const bool now = top->s_axil_arready;
        tick();
        if (now && !taken) {
            taken = true;
            top->s_axil_arvalid = 0;
        }
    }
    return false;
}

uint32_t get() {
    uint8_t b[4];
    if (fread(b, 1, 4, stdin) != 4) exit(0);
    return b[0] | b[1] << 8 | b[2] << 16 | static_cast<uint32_t>(b[3]) << 24;
}

uint64_t get64() {
    const uint64_t low = get();
    return low | static_cast<uint64_t>(get()) << 32;
}

void put(uint32_t value) {
    const uint8_t b[4] = {uint8_t(value), uint8_t(value >> 8), uint8_t(value >> 16),
                          uint8_t(value >> 24)};
    fwrite(b, 1, 4, stdout);
}

}  // namespace

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    top = new Vnf_cgla;
    bind_ports();
    top->aclk = 0;
    top->aresetn = 0;
    for (int i = 0; i < 8; ++i) tick();
    top->aresetn = 1;
    for (int i = 0; i < 40; ++i) tick();
    uint64_t launch_cycle = 0;
    for (;;) {
        switch (get()) {
            case 1: {  // write memory: address, bytes, data
                const uint64_t address = get64();
                const uint32_t length = get();
                if (memory.size() < address + length) memory.resize(address + length);
                if (length && fread(&memory[address], 1, length, stdin) != length) return 0;
                put(0);
                break;
            }
            case 2: {  // read memory: address, bytes
                const uint64_t address = get64();
                const uint32_t length = get();
                if (memory.size() < address + length) memory.resize(address + length);
                fwrite(&memory[address], 1, length, stdout);
                break;
            }
            case 3: {  // launch: register writes, then wait for the interrupt
                const uint32_t count = get();
                const uint64_t limit = get64();
                launch_cycle = cycle;
                bool ok = true;
                for (uint32_t i = 0; i < count; ++i) {
                    const uint32_t address = get();
                    const uint32_t value = get();
                    ok = ok && write_register(address, value);
                }
                while (ok && !top->irq) {
                    if (cycle - launch_cycle > limit) {
                        ok = false;
                        break;
                    }
                    tick();
                }
                const uint64_t spent = cycle - launch_cycle;
                put(ok ? 0 : 1);
                put(static_cast<uint32_t>(spent));
                put(static_cast<uint32_t>(spent >> 32));
                put(violations);
                break;
            }
            case 4: {  // read a register
                uint32_t value = 0;
                const bool ok = read_register(get(), &value);
                put(ok ? 0 : 1);
                put(value);
                break;
            }
            case 5: {  // memory behaviour: share, latency, busy share, seed
                share = get();
                latency = get();
                busy_share = get();
                random_state = get() * 0x9e3779b97f4a7c15ull + 1;
                put(0);
                break;
            }
            case 6: {  // write a register: address, value
                const uint32_t address = get();
                const uint32_t value = get();
                put(write_register(address, value) ? 0 : 1);
                break;
            }
            default:
                top->final();
                delete top;
                return 0;
        }
        fflush(stdout);
    }
}
