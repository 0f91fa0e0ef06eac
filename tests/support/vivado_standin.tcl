# A stand-in for Vivado's Tcl interpreter: knows the commands, options, pins and properties that the generated scripts
# use, keeps just enough state to notice a wrong name or an unconnected pin, and logs every call. It proves syntax,
# control flow and names, not what Vivado makes of them.
#
#   tclsh vivado_standin.tcl SCRIPT ?arguments after -tclargs?
#
# Environment: STANDIN_LOG (file), STANDIN_VERSION, STANDIN_PARTS, STANDIN_BOARDS, STANDIN_WNS, STANDIN_WHS,
# STANDIN_CRITICAL (count in the session), STANDIN_RUN_LOG (text of the run logs), STANDIN_PROGRESS, STANDIN_NO_XLCONCAT,
# STANDIN_CORE_BUSES (buses the packager recognises).

proc standin_setting {name default} {
    return [expr {[info exists ::env(STANDIN_$name)] ? $::env(STANDIN_$name) : $default}]
}

proc standin_fail {message} {
    puts stderr "STANDIN: $message"
    exit 3
}

proc unknown {args} {
    standin_fail "no such command: $args"
}

set standin_script [file normalize [lindex $argv 0]]
set standin_root [file dirname [file dirname $standin_script]]
set standin_log [open [standin_setting LOG /dev/null] w]

proc standin_record {name arguments} {
    set line [string map [list $::standin_root ROOT] [concat [list $name] $arguments]]
    puts $::standin_log $line
}

# Defines a command: its options (a trailing = means that a value follows), and a body that sees $name, $options (a
# dictionary) and $values (the other arguments).
proc standin {command known body} {
    proc $command {args} [string map [list @NAME@ [list $command] @KNOWN@ [list $known]] {
        set name @NAME@
        set known @KNOWN@
        standin_record $name $args
        set options [dict create]
        set values [list]
        for {set i 0} {$i < [llength $args]} {incr i} {
            set arg [lindex $args $i]
            if {![regexp {^-[a-z_]+$} $arg]} {
                lappend values $arg
            } elseif {$arg in $known} {
                dict set options $arg 1
            } elseif {"${arg}=" in $known} {
                incr i
                if {$i >= [llength $args]} {
                    standin_fail "$name: $arg needs a value"
                }
                dict set options $arg [lindex $args $i]
            } else {
                standin_fail "$name has no option $arg"
            }
        }
    }]$body
}

proc standin_touch {file} {
    file mkdir [file dirname $file]
    close [open $file w]
}

proc standin_need_files {files} {
    foreach file $files {
        if {![file isfile $file]} {
            standin_fail "no such file: $file"
        }
    }
}

# --- Session ---
standin version {-short} { return [standin_setting VERSION 2023.2] }
standin get_parts {-quiet} {
    set installed [standin_setting PARTS *]
    return [expr {$installed eq "*" || [lindex $values 0] in $installed ? $values : [list]}]
}
standin get_board_parts {-quiet} {
    set found [list]
    foreach board [standin_setting BOARDS [list xilinx.com:zcu102:part0:3.3 xilinx.com:zcu102:part0:3.4 \
            xilinx.com:zcu104:part0:1.1 xilinx.com:zcu106:part0:2.6 xilinx.com:kv260_som:part0:1.4 \
            xilinx.com:kr260_som:part0:1.1 avnet.com:ultra96v2:part0:1.2]] {
        if {[string match [lindex $values 0] $board]} {
            lappend found $board
        }
    }
    return $found
}
standin get_msg_config {-count -severity=} { return [standin_setting CRITICAL 0] }
standin set_param {} {}

# --- Non-project flow ---
standin read_verilog {} { standin_need_files [concat {*}$values] }
standin read_mem {} { standin_need_files [concat {*}$values] }
standin read_xdc {-mode=} {
    standin_need_files $values
    if {[dict get $options -mode] ne "out_of_context"} { standin_fail "read_xdc -mode [dict get $options -mode]" }
    uplevel #0 [list source [lindex $values 0]]
}
standin create_clock {-name= -period=} {
    if {![string is double -strict [dict get $options -period]]} { standin_fail "period [dict get $options -period]" }
}
standin get_ports {} { return $values }
standin synth_design {-top= -part= -mode= -flatten_hierarchy=} {}
foreach step {opt_design place_design phys_opt_design route_design} { standin $step {} {} }
standin write_checkpoint {-force} { standin_touch [lindex $values 0] }
foreach report {report_timing_summary report_drc report_power} {
    standin $report {-file=} { standin_touch [dict get $options -file] }
}
standin report_utilization {-hierarchical -file=} { standin_touch [dict get $options -file] }
standin get_timing_paths {-max_paths= -nworst= -setup -hold} {
    set kind [expr {[dict exists $options -setup] ? "WNS" : "WHS"}]
    set slack [standin_setting $kind 0.123]
    return [expr {$slack eq "none" ? "" : "path:$slack"}]
}

# --- Projects and runs ---
standin create_project {-force -part=} {
    lassign $values ::standin_project ::standin_folder
    file mkdir $::standin_folder
}
standin close_project {} {}
standin current_project {} { return $::standin_project }
standin current_fileset {} { return sources_1 }
standin add_files {-norecurse -fileset=} { standin_need_files [concat {*}$values] }
standin update_compile_order {-fileset=} {}
standin update_ip_catalog {-rebuild} {}
standin launch_runs {-to_step= -jobs=} {
    foreach run {synth_1 impl_1} {
        set folder [get_property DIRECTORY $run]
        file mkdir $folder
        set channel [open [file join $folder runme.log] w]
        puts $channel [standin_setting RUN_LOG "INFO: fine"]
        close $channel
    }
    standin_touch [file join [get_property DIRECTORY impl_1] system_wrapper.bit]
}
standin wait_on_run {} {}
standin open_run {} {}
standin get_runs {} { return $values }
standin get_files {} { return $values }
standin write_hw_platform {-fixed -include_bit -force -file=} { standin_touch [dict get $options -file] }
standin get_property {} {
    lassign $values property object
    switch -- $property {
        SLACK { return [string range $object 5 end] }
        PROGRESS { return [standin_setting PROGRESS 100%] }
        STATUS { return "route_design ERROR" }
        DIRECTORY { return [file join $::standin_folder $::standin_project.runs $object] }
        default { standin_fail "get_property $property" }
    }
}
set standin_properties {
    board_part ip_repo_paths top name version display_name description
    BITSTREAM.GENERAL.COMPRESS
    CONFIG.PSU__USE__M_AXI_GP0 CONFIG.PSU__USE__M_AXI_GP1 CONFIG.PSU__USE__M_AXI_GP2 CONFIG.PSU__MAXIGP2__DATA_WIDTH
    CONFIG.PSU__USE__S_AXI_GP2 CONFIG.PSU__SAXIGP2__DATA_WIDTH CONFIG.PSU__USE__S_AXI_GP3
    CONFIG.PSU__SAXIGP3__DATA_WIDTH CONFIG.PSU__USE__S_AXI_GP4 CONFIG.PSU__SAXIGP4__DATA_WIDTH
    CONFIG.PSU__USE__S_AXI_GP5 CONFIG.PSU__SAXIGP5__DATA_WIDTH CONFIG.PSU__USE__IRQ0 CONFIG.PSU__FPGA_PL0_ENABLE
    CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ
    CONFIG.c_include_sg CONFIG.c_sg_length_width CONFIG.c_include_mm2s CONFIG.c_include_s2mm
    CONFIG.c_m_axis_mm2s_tdata_width CONFIG.c_m_axi_mm2s_data_width CONFIG.c_s_axis_s2mm_tdata_width
    CONFIG.c_m_axi_s2mm_data_width CONFIG.NUM_SI CONFIG.NUM_MI CONFIG.NUM_PORTS
}
standin set_property {-dict=} {
    if {[dict exists $options -dict]} {
        set pairs [dict get $options -dict]
        set object [lindex $values 0]
    } else {
        set pairs [lrange $values 0 1]
        set object [lindex $values 2]
    }
    if {$object eq ""} { standin_fail "set_property without an object: $args" }
    foreach {property value} $pairs {
        if {$property ni $::standin_properties} { standin_fail "no property $property" }
        if {$value eq ""} { standin_fail "property $property without a value" }
        dict set ::standin_values $object,$property $value
    }
}
standin current_design {} { return design }

# --- Packager ---
namespace eval ipx {}
standin ipx::package_project {-root_dir= -vendor= -library= -taxonomy= -import_files -force} {}
standin ipx::current_core {} { return core_object }
standin ipx::get_bus_interfaces {-of_objects=} {
    set known [standin_setting CORE_BUSES [dict get $::standin_interfaces core]]
    return [expr {[lindex $values 0] in $known ? $values : [list]}]
}
standin ipx::associate_bus_interfaces {-busif= -clock=} {}
standin ipx::infer_bus_interface {} {}
foreach step {create_xgui_files update_checksums check_integrity save_core} { standin ipx::$step {} {} }

# --- Block design ---
# Pins of each kind of cell: plain pins and interfaces. Every one must be connected when the design is validated.
set standin_pins {
    zynq_ultra_ps_e {pl_clk0 pl_resetn0 pl_ps_irq0 maxihpm0_lpd_aclk}
    proc_sys_reset {slowest_sync_clk ext_reset_in peripheral_aresetn interconnect_aresetn}
    axi_dma {s_axi_lite_aclk axi_resetn m_axi_mm2s_aclk m_axi_s2mm_aclk mm2s_introut s2mm_introut}
    smartconnect {aclk aresetn}
    xlconcat {dout}
    ilconcat {dout}
    core {aclk aresetn irq}
}
set standin_interfaces {
    zynq_ultra_ps_e {M_AXI_HPM0_LPD}
    proc_sys_reset {}
    axi_dma {S_AXI_LITE M_AXI_MM2S M_AXI_S2MM M_AXIS_MM2S S_AXIS_S2MM}
    smartconnect {}
    xlconcat {}
    ilconcat {}
    core {s_axil s_axis_token m_axis_result s_axis_weight m_axis_weight}
}
# The core's own buses are those of its top module: a bus is a group of ports <bus>_<signal>.
set standin_core_masters [list]
set channel [open [file join $standin_root manifest.json] r]
set manifest [read $channel]
close $channel
if {[string match {*"nf_cgla"*} $manifest]} {
    set buses {s_axil}
    foreach {whole bus} [regexp -all -inline {"name": "(m_axi_[a-z0-9]+)_a[rw]addr"} $manifest] {
        lappend buses $bus
        lappend standin_core_masters $bus
    }
    dict set standin_interfaces core $buses
}
set standin_cells [dict create]
set standin_connected [list]
set standin_values [dict create]
set standin_spaces [dict create]

standin create_bd_design {} {}
standin get_ipdefs {-quiet -filter=} {
    regexp {NAME == (\w+)} [dict get $options -filter] whole ip
    if {![dict exists $::standin_pins $ip]} { standin_fail "no IP $ip" }
    if {$ip eq "xlconcat" && [standin_setting NO_XLCONCAT 0]} { return [list] }
    return [list xilinx.com:ip:$ip:3.2 xilinx.com:ip:$ip:3.10]
}
standin create_bd_cell {-type= -vlnv=} {
    lassign [split [dict get $options -vlnv] :] vendor library ip
    if {$vendor eq "nfgen"} { set ip core }
    if {![dict exists $::standin_pins $ip]} { standin_fail "no IP $ip" }
    if {[dict exists $::standin_cells [lindex $values 0]]} { standin_fail "cell $values exists" }
    dict set ::standin_cells [lindex $values 0] $ip
}
standin get_bd_cells {} {
    foreach cell $values {
        if {![dict exists $::standin_cells $cell]} { standin_fail "no cell $cell" }
    }
    return $values
}
standin apply_bd_automation {-rule= -config=} {}
# Pins of a cell as it is set up: memory ports exist when they are switched on, inputs of a concatenation by number.
proc standin_names {table cell} {
    set ip [dict get $::standin_cells $cell]
    set names [dict get [set ::$table] $ip]
    if {$ip eq "zynq_ultra_ps_e"} {
        foreach {n gp} {0 2 1 3 2 4 3 5} {
            if {[dict exists $::standin_values $cell,CONFIG.PSU__USE__S_AXI_GP$gp]} {
                lappend names [expr {$table eq "standin_pins" ? "saxihp${n}_fpd_aclk" : "S_AXI_HP${n}_FPD"}]
            }
        }
    }
    if {$ip in {xlconcat ilconcat} && [dict exists $::standin_values $cell,CONFIG.NUM_PORTS]
            && $table eq "standin_pins"} {
        for {set i 0} {$i < [dict get $::standin_values $cell,CONFIG.NUM_PORTS]} {incr i} { lappend names In$i }
    }
    return $names
}
proc standin_pin {table pin} {
    lassign [split $pin /] cell name
    if {![dict exists $::standin_cells $cell]} { standin_fail "no cell $cell" }
    set ip [dict get $::standin_cells $cell]
    set extra [expr {$ip eq "smartconnect" && $table eq "standin_interfaces" && [regexp {^[SM]\d\d_AXI$} $name]}]
    if {$name ni [standin_names $table $cell] && !$extra} { standin_fail "$ip has no pin $name" }
    return $pin
}
standin get_bd_pins {} { return [standin_pin standin_pins [lindex $values 0]] }
standin get_bd_intf_pins {} { return [standin_pin standin_interfaces [lindex $values 0]] }
standin connect_bd_net {} { lappend ::standin_connected {*}$values }
standin connect_bd_intf_net {} {
    foreach pin $values {
        if {$pin in $::standin_connected} { standin_fail "interface $pin is connected twice" }
        lappend ::standin_connected $pin
    }
}
standin get_bd_addr_spaces {} {
    lassign [split [lindex $values 0] /] cell space
    if {![dict exists $::standin_cells $cell] || $space ni [concat {Data Data_MM2S Data_S2MM} $::standin_core_masters]} { standin_fail "no space $values" }
    return $values
}
standin get_bd_addr_segs {} {
    set pattern [lindex $values 0]
    if {[regexp {^ps/SAXIGP([2-5])/\*$} $pattern whole gp]} {
        set segments [list]
        foreach name {DDR_HIGH DDR_LOW LPS_OCM QSPI} {
            lappend segments /ps/SAXIGP$gp/HP[expr {$gp - 2}]_$name
        }
        return $segments
    }
    standin_pin standin_interfaces [string range $pattern 0 end-2]
    return [list /[string range $pattern 0 end-2]/reg0]
}
proc standin_map {options segment} {
    set space [lindex [dict get $options -target_address_space] 0]
    if {$segment in [expr {[dict exists $::standin_spaces $space] ? [dict get $::standin_spaces $space] : ""}]} {
        standin_fail "$segment is mapped twice into $space"
    }
    dict lappend ::standin_spaces $space $segment
}
standin assign_bd_address {-offset= -range= -target_address_space=} { standin_map $options [lindex $values 0] }
standin exclude_bd_addr_seg {-target_address_space=} { standin_map $options [lindex $values 0] }
standin validate_bd_design {} {
    dict for {cell ip} $::standin_cells {
        foreach pin [concat [standin_names standin_pins $cell] [standin_names standin_interfaces $cell]] {
            if {"$cell/$pin" ni $::standin_connected} { standin_fail "$cell/$pin is not connected" }
        }
        foreach {side count} {S NUM_SI M NUM_MI} {
            if {![dict exists $::standin_values $cell,CONFIG.$count]} { continue }
            for {set i 0} {$i < [dict get $::standin_values $cell,CONFIG.$count]} {incr i} {
                set pin [format %s/%s%02d_AXI $cell $side $i]
                if {$pin ni $::standin_connected} { standin_fail "$pin is not connected" }
            }
        }
        if {$ip eq "axi_dma"} {
            foreach space {Data_MM2S Data_S2MM} {
                if {![dict exists $::standin_spaces $cell/$space] || [llength [dict get $::standin_spaces $cell/$space]] != 4} {
                    standin_fail "$cell/$space has unmapped segments"
                }
            }
        }
    }
    foreach bus $::standin_core_masters {
        if {![dict exists $::standin_spaces core/$bus] || [llength [dict get $::standin_spaces core/$bus]] != 4} {
            standin_fail "core/$bus has unmapped segments"
        }
    }
    if {[llength [dict get $::standin_spaces ps/Data]] != [dict get $::standin_values control,CONFIG.NUM_MI]} {
        standin_fail "slaves are not all mapped"
    }
}
standin save_bd_design {} {
    standin_touch [file join $::standin_folder $::standin_project.gen sources_1 bd system hw_handoff system.hwh]
}
standin make_wrapper {-files= -top} {
    set wrapper [file join $::standin_folder $::standin_project.gen sources_1 bd system hdl system_wrapper.v]
    standin_touch $wrapper
    return $wrapper
}

set argv [lrange $argv 1 end]
set argc [llength $argv]
if {[catch {source $standin_script} message]} {
    standin_fail "$message\n$errorInfo"
}
