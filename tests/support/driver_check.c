/* Runs the generated driver against arrays in memory: a healthy device, another design, and a port that loses
 * words off a 16-byte boundary. */
#include <stdio.h>
#include <string.h>

#include "nf_driver.h"

static uint32_t core[NF_TRAINER_BYTES / 4];
static uint32_t dma[32];

static void reset(void)
{
    memset(core, 0, sizeof core);
    memset(dma, 0, sizeof dma);
    core[NF_TRAINER_ID / 4] = NF_TRAINER_ID_VALUE;
    core[NF_TRAINER_VERSION / 4] = NF_TRAINER_VERSION_VALUE;
    core[NF_TRAINER_BUILD_ID / 4] = NF_TRAINER_BUILD_ID_VALUE;
    core[NF_TRAINER_STATE_BEATS / 4] = NF_TRAINER_STATE_BEATS_VALUE;
    dma[0x04 / 4] = 0x2; /* both channels idle */
    dma[0x34 / 4] = 0x2;
}

static int failures;

static void expect(const char *what, int got, int wanted)
{
    if (got != wanted) {
        printf("%s: %s, expected %s\n", what, nf_result_text((nf_result)got), nf_result_text((nf_result)wanted));
        failures++;
    }
}

int main(void)
{
    static uint32_t words[4096 * 4];
    static uint32_t result_words[NF_RESULT_HEADER_WORDS + NF_TRAINER_MODEL_VOCAB_VALUE];
    nf_device device = {core, dma, dma, 100};
    nf_buffer buffer = {words, 0x1000, sizeof words};
    nf_buffer result = {result_words, 0x9000, sizeof result_words};
    nf_buffer odd = {words, 0x1004, sizeof words};
    nf_buffer small = {words, 0x1000, 4};
    nf_report report;
    float loss = 1.5f;

    reset();
    expect("selftest", nf_selftest(&device), NF_OK);
    core[0] = 0;
    expect("other design", nf_selftest(&device), NF_WRONG_ID);
    reset();
    core[1] = 0;
    expect("lost word", nf_selftest(&device), NF_BUS_WIDTH);

    reset();
    memcpy(result_words, &loss, sizeof loss);
    result_words[6] = 1;
    expect("train", nf_train(&device, &buffer, &result, &report), NF_OK);
    if (report.loss != 1.5f || report.cycles != 1ull << 32)
        failures++, printf("report is wrong\n");
    if (core[NF_TRAINER_CONTROL / 4] != NF_TRAINER_CONTROL_START_TRAIN || dma[0x18 / 4] != 0x1000 ||
        dma[0x28 / 4] != 4 * (NF_TRAINER_MODEL_SEQ_LEN_VALUE + 1) || dma[(0x30 + 0x28) / 4] != 4 * NF_RESULT_HEADER_WORDS)
        failures++, printf("train wrote the wrong registers\n");
    expect("no result buffer", nf_train(&device, &buffer, NULL, NULL), NF_BAD_ARGUMENT);
    expect("misaligned", nf_train(&device, &odd, &result, NULL), NF_BAD_ARGUMENT);
    expect("too small", nf_save(&device, &small), NF_BAD_ARGUMENT);
    expect("position", nf_evaluate(&device, &buffer, &result, NF_TRAINER_MODEL_SEQ_LEN_VALUE, NULL), NF_BAD_ARGUMENT);
    expect("evaluate", nf_evaluate(&device, &buffer, &result, 3, &report), NF_OK);
    expect("save", nf_save(&device, &buffer), NF_OK);
    if (dma[(0x30 + 0x28) / 4] != nf_state_bytes(&device))
        failures++, printf("save asked for the wrong length\n");
    expect("restore", nf_restore(&device, &buffer), NF_OK);
    core[NF_TRAINER_STATUS / 4] = NF_TRAINER_STATUS_BUSY;
    expect("busy", nf_restore(&device, &buffer), NF_BUSY);
    core[NF_TRAINER_STATUS / 4] = NF_TRAINER_STATUS_ERROR_NUMBER;
    expect("core error", nf_restore(&device, &buffer), NF_CORE_ERROR);
    reset();
    dma[0x04 / 4] = 0x10;
    expect("dma error", nf_restore(&device, &buffer), NF_DMA_ERROR);
    dma[0x04 / 4] = 0;
    expect("timeout", nf_restore(&device, &buffer), NF_TIMEOUT);
    return failures != 0;
}
