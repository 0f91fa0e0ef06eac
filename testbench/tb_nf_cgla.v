// Self-checking Verilog test bench of the programmable array, for simulators without C++
// (Icarus Verilog, Vivado xsim). A small projection lies in tb_memory.mem; the bench writes the
// registers of tb_registers.mem, serves the memory ports with stalls, waits for the interrupt
// and compares every result with tb_expected.mem (`===`, so an X is a difference).
`timescale 1ns / 1ps
`default_nettype none

module tb_nf_cgla;

    localparam PORTS = @PORTS@;
    localparam WORDS = @WORDS@;
    localparam WRITES = @WRITES@;
    localparam RESULTS = @RESULTS@;

    reg aclk = 1'b0;
    reg aresetn = 1'b0;
    always #2 aclk = ~aclk;

    reg  [11:0] awaddr = 12'd0;
    reg         awvalid = 1'b0;
    wire        awready;
    reg  [31:0] wdata = 32'd0;
    reg         wvalid = 1'b0;
    wire        wready;
    wire [1:0]  bresp;
    wire        bvalid;
    wire        irq;

    wire [40*PORTS-1:0]  araddr;
    wire [8*PORTS-1:0]   arlen;
    wire [PORTS-1:0]     arvalid;
    wire [PORTS-1:0]     arready;
    wire [128*PORTS-1:0] rdata;
    wire [PORTS-1:0]     rlast;
    wire [PORTS-1:0]     rvalid;
    wire [PORTS-1:0]     rready;

    wire [39:0]  waddress;
    wire         waddress_valid;
    reg          waddress_ready = 1'b0;
    wire [127:0] write_data;
    wire [15:0]  write_strobe;
    wire         write_last;
    wire         write_valid;
    reg          write_ready = 1'b0;
    reg          answer_valid = 1'b0;

    nf_cgla dut (
        .aclk(aclk),
        .aresetn(aresetn),
        .s_axil_awaddr(awaddr),
        .s_axil_awprot(3'd0),
        .s_axil_awvalid(awvalid),
        .s_axil_awready(awready),
        .s_axil_wdata(wdata),
        .s_axil_wstrb(4'hF),
        .s_axil_wvalid(wvalid),
        .s_axil_wready(wready),
        .s_axil_bresp(bresp),
        .s_axil_bvalid(bvalid),
        .s_axil_bready(1'b1),
        .s_axil_araddr(12'd0),
        .s_axil_arprot(3'd0),
        .s_axil_arvalid(1'b0),
        .s_axil_arready(),
        .s_axil_rdata(),
        .s_axil_rresp(),
        .s_axil_rvalid(),
        .s_axil_rready(1'b1),
@PINS@
        .m_axi_w_awaddr(waddress),
        .m_axi_w_awlen(),
        .m_axi_w_awsize(),
        .m_axi_w_awburst(),
        .m_axi_w_awcache(),
        .m_axi_w_awprot(),
        .m_axi_w_awvalid(waddress_valid),
        .m_axi_w_awready(waddress_ready),
        .m_axi_w_wdata(write_data),
        .m_axi_w_wstrb(write_strobe),
        .m_axi_w_wlast(write_last),
        .m_axi_w_wvalid(write_valid),
        .m_axi_w_wready(write_ready),
        .m_axi_w_bresp(2'd0),
        .m_axi_w_bvalid(answer_valid),
        .m_axi_w_bready(),
        .irq(irq)
    );

    reg [127:0] memory [0:WORDS-1];
    reg [63:0]  writes [0:WRITES-1];
    reg [63:0]  expected [0:RESULTS-1];

    // Read ports: bursts are answered in order; every channel stalls now and then.
    genvar p;
    generate
        for (p = 0; p < PORTS; p = p + 1) begin : port
            reg [39:0] addresses [0:31];
            reg [8:0]  beats [0:31];
            reg [5:0]  head = 6'd0;
            reg [5:0]  tail = 6'd0;
            reg        ready = 1'b0;
            reg        valid = 1'b0;
            reg        last = 1'b0;
            reg [127:0] data = 128'd0;
            reg [39:0] now = 40'd0;
            reg [8:0]  left = 9'd0;
            integer    seed = p + 1;
            assign arready[p] = ready;
            assign rvalid[p] = valid;
            assign rlast[p] = last;
            assign rdata[128*p +: 128] = data;
            always @(posedge aclk) begin
                if (arvalid[p] && arready[p]) begin
                    addresses[tail[4:0]] <= araddr[40*p +: 40];
                    beats[tail[4:0]] <= {1'b0, arlen[8*p +: 8]} + 9'd1;
                    tail <= tail + 6'd1;
                end
                ready <= ($random(seed) % 8 != 0) && ((tail - head) & 6'h3F) < 24;
                if (!valid || rready[p]) begin
                    valid <= 1'b0;
                    if (left == 9'd0) begin
                        if (head != tail) begin
                            now <= addresses[head[4:0]];
                            left <= beats[head[4:0]];
                            head <= head + 6'd1;
                        end
                    end else if ($random(seed) % 4 != 0) begin
                        valid <= 1'b1;
                        data <= memory[now[39:4]];
                        last <= left == 9'd1;
                        now <= now + 40'd16;
                        left <= left - 9'd1;
                    end
                end
            end
        end
    endgenerate

    // Write port: an address and its beat, in any order.
    reg         have_address = 1'b0;
    reg         have_data = 1'b0;
    reg [39:0]  held_address = 40'd0;
    reg [127:0] held_data = 128'd0;
    reg [15:0]  held_strobe = 16'd0;
    integer     wseed = 77;
    integer     lane;
    always @(posedge aclk) begin
        answer_valid <= 1'b0;
        if (waddress_valid && waddress_ready) begin
            have_address <= 1'b1;
            held_address <= waddress;
        end
        if (write_valid && write_ready) begin
            have_data <= 1'b1;
            held_data <= write_data;
            held_strobe <= write_strobe;
            if (write_last !== 1'b1) begin
                $display("FAIL: a single-beat write without WLAST");
                $finish;
            end
        end
        if (have_address && have_data) begin
            for (lane = 0; lane < 16; lane = lane + 1)
                if (held_strobe[lane])
                    memory[held_address[39:4]][8*lane +: 8] <= held_data[8*lane +: 8];
            have_address <= 1'b0;
            have_data <= 1'b0;
            answer_valid <= 1'b1;
        end
        waddress_ready <= !have_address && !waddress_ready && ($random(wseed) % 4 != 0);
        write_ready <= !have_data && !write_ready && ($random(wseed) % 4 != 0);
    end

    integer i;
    integer wrong;
    integer waited;
    reg address_taken;
    reg data_taken;
    reg [31:0] found;

    task write_register(input [31:0] address, input [31:0] value);
        begin
            awaddr <= address[11:0];
            wdata <= value;
            awvalid <= 1'b1;
            wvalid <= 1'b1;
            address_taken = 1'b0;
            data_taken = 1'b0;
            while (!address_taken || !data_taken) begin
                @(posedge aclk);
                if (awvalid && awready === 1'b1) begin address_taken = 1'b1; awvalid <= 1'b0; end
                if (wvalid && wready === 1'b1) begin data_taken = 1'b1; wvalid <= 1'b0; end
            end
            while (bvalid !== 1'b1) @(posedge aclk);
            @(posedge aclk);
            if (bresp !== 2'd0) begin
                $display("FAIL: register %h answers %b", address, bresp);
                $finish;
            end
        end
    endtask

    initial begin
        $readmemh("tb_memory.mem", memory);
        $readmemh("tb_registers.mem", writes);
        $readmemh("tb_expected.mem", expected);
        // One cycle of reset behind the two registers of the synchroniser is enough.
        repeat (4) @(posedge aclk);
        aresetn <= 1'b1;
        repeat (4) @(posedge aclk);
        write_register(32'h018, 32'd1);
        for (i = 0; i < WRITES; i = i + 1)
            write_register(writes[i][63:32], writes[i][31:0]);
        waited = 0;
        while (irq !== 1'b1) begin
            @(posedge aclk);
            waited = waited + 1;
            if (waited > 200000) begin
                $display("FAIL: no interrupt");
                $finish;
            end
        end
        wrong = 0;
        for (i = 0; i < RESULTS; i = i + 1) begin
            found = memory[expected[i][63:36]][8*expected[i][35:32] +: 32];
            if (found !== expected[i][31:0]) begin
                if (wrong == 0)
                    $display("result %0d: got %h, want %h", i, found, expected[i][31:0]);
                wrong = wrong + 1;
            end
        end
        if (wrong == 0)
            $display("PASS: %0d results, %0d cycles from the last register write", RESULTS, waited);
        else
            $display("FAIL: %0d of %0d results differ", wrong, RESULTS);
        $finish;
    end
endmodule

`resetall
