/* Runs the emitted array driver against registers in plain memory. */
#include <stdio.h>
#include <string.h>

#include "nf_cgla_driver.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("line %d: %s\n", __LINE__, #condition);                                                             \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static uint32_t registers[1024];

int main(void)
{
    nf_cgla device = {registers, 3};
    nf_cgla_group groups[NF_CGLA_GROUPS];
    nf_cgla_report report;

    memset(groups, 0, sizeof groups);
    CHECK(nf_cgla_selftest(&device) == NF_CGLA_WRONG_ID);
    registers[NF_CGLA_ID / 4] = NF_CGLA_ID_VALUE;
    registers[NF_CGLA_VERSION / 4] = NF_CGLA_VERSION_VALUE;
    registers[NF_CGLA_BUILD_ID / 4] = NF_CGLA_BUILD_ID_VALUE;
    CHECK(nf_cgla_selftest(&device) == NF_CGLA_OK);

    groups[1].started = 1;
    groups[1].linked = 1;
    groups[1].program = 0x1200000010u;
    groups[1].results = 0x340u;
    groups[1].program_beats = 7;
    CHECK(nf_cgla_start(&device, groups) == NF_CGLA_OK);
    CHECK(registers[NF_CGLA_CONTROL / 4] == 2 && registers[NF_CGLA_LINKS / 4] == 2);
    CHECK(registers[NF_CGLA_G1_PROGRAM_ADDR_LO / 4] == 0x10);
    CHECK(registers[NF_CGLA_G1_PROGRAM_ADDR_HI / 4] == 0x12);
    CHECK(registers[NF_CGLA_G1_PROGRAM_BEATS / 4] == 7);
    CHECK(registers[NF_CGLA_G1_OUT_ADDR_LO / 4] == 0x340);
    CHECK(registers[NF_CGLA_G0_PROGRAM_BEATS / 4] == 0);
    groups[1].results = 0x344u;
    CHECK(nf_cgla_start(&device, groups) == NF_CGLA_BAD_ADDRESS);

    CHECK(nf_cgla_wait(&device, &report) == NF_CGLA_TIMEOUT);
    registers[NF_CGLA_STATUS / 4] = NF_CGLA_STATUS_BUSY;
    CHECK(nf_cgla_start(&device, groups) == NF_CGLA_BUSY);
    registers[NF_CGLA_STATUS / 4] = NF_CGLA_STATUS_DONE | NF_CGLA_STATUS_ERROR_PACKET;
    CHECK(nf_cgla_wait(&device, &report) == NF_CGLA_BAD_PACKET);
    registers[NF_CGLA_STATUS / 4] = NF_CGLA_STATUS_DONE | NF_CGLA_STATUS_ERROR_READ;
    CHECK(nf_cgla_wait(&device, &report) == NF_CGLA_MEMORY_ERROR);
    registers[NF_CGLA_STATUS / 4] = NF_CGLA_STATUS_DONE;
    registers[NF_CGLA_CYCLES / 4] = 99;
    CHECK(nf_cgla_wait(&device, &report) == NF_CGLA_OK && report.cycles == 99);
    return 0;
}
