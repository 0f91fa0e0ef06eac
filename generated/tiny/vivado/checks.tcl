# Checks that both build scripts share. Sourced by them, not run by itself.

# Ends the script with one plain sentence and exit code 1.
proc nf_fail {message} {
    puts stderr "ERROR: $message"
    exit 1
}

# Reads -jobs N, -allow ID (repeatable) and -checks-only from the arguments after -tclargs.
proc nf_arguments {arguments} {
    global nf_jobs nf_allowed nf_checks_only
    set nf_jobs 4
    set nf_allowed [list]
    set nf_checks_only 0
    while {[llength $arguments] > 0} {
        set option [lindex $arguments 0]
        set value [lindex $arguments 1]
        switch -- $option {
            -jobs {
                if {![string is integer -strict $value] || $value < 1} {
                    nf_fail "-jobs takes a number of at least 1, not '$value'."
                }
                set nf_jobs $value
                set arguments [lrange $arguments 2 end]
            }
            -allow {
                if {$value eq ""} {
                    nf_fail "-allow takes the ID of a message, for example -allow {BD 41-1356}."
                }
                lappend nf_allowed $value
                set arguments [lrange $arguments 2 end]
            }
            -checks-only {
                set nf_checks_only 1
                set arguments [lrange $arguments 1 end]
            }
            default {
                nf_fail "unknown argument '$option'; known are -jobs N, -allow ID and -checks-only."
            }
        }
    }
}

# The running Vivado must be at least this release.
proc nf_require_version {oldest} {
    set text [version -short]
    if {![regexp {^[0-9]+\.[0-9]+} $text release]} {
        nf_fail "cannot read Vivado's version from '$text'."
    }
    if {[package vcompare $release $oldest] < 0} {
        nf_fail "this is Vivado $text; these scripts need $oldest or newer."
    }
    puts "Vivado $text"
}

# The part's device family must be installed and licensed.
proc nf_require_part {part licence} {
    if {[llength [get_parts -quiet $part]] == 0} {
        nf_fail "part $part is not in this Vivado installation: add its device family with the installer\
            (Help > Add Design Tools or Devices). Licence: $licence."
    }
    puts "Part $part"
}

# The newest installed revision of a board part, or an error that says where board files come from.
proc nf_require_board {board} {
    set found [lsort -dictionary [get_board_parts -quiet "${board}:*"]]
    if {[llength $found] == 0} {
        nf_fail "board files of $board are not installed: Vivado > Tools > Vivado Store > Boards,\
            or 'xhub::install \[xhub::get_xitems *[lindex [split $board :] 1]*\]' in the Tcl console."
    }
    puts "Board [lindex $found end]"
    return [lindex $found end]
}

# The newest revision of an IP in the catalogue: fixed revisions break with every second release.
proc nf_ip {name} {
    set found [lsort -dictionary [get_ipdefs -quiet -filter "VENDOR == xilinx.com && NAME == $name"]]
    if {[llength $found] == 0} {
        nf_fail "IP $name is not in this Vivado's catalogue."
    }
    return [lindex $found end]
}

# Lines of a log that are critical warnings and are not allowed.
proc nf_critical_warnings {log} {
    global nf_allowed
    set lines [list]
    if {![file exists $log]} {
        return $lines
    }
    set channel [open $log r]
    while {[gets $channel line] >= 0} {
        if {![string match "CRITICAL WARNING:*" $line]} {
            continue
        }
        set id ""
        regexp {\[([^\]]+)\]} $line whole id
        if {$id ni $nf_allowed} {
            lappend lines $line
        }
    }
    close $channel
    return $lines
}

# Fails on critical warnings of this session and of the given run logs. Vivado counts those of the session; once some
# are allowed, the count says too little, and the session's own log is read instead.
proc nf_require_no_critical_warnings {logs} {
    global nf_allowed
    set session 0
    if {[llength $nf_allowed] == 0} {
        set session [get_msg_config -count -severity {CRITICAL WARNING}]
    } else {
        set log [file join [pwd] vivado.log]
        if {![file exists $log]} {
            nf_fail "-allow needs this session's log, and $log is not there; run without -log and -nolog."
        }
        lappend logs $log
    }
    set lines [list]
    foreach log $logs {
        set lines [concat $lines [nf_critical_warnings $log]]
    }
    if {[llength $lines] > 0 || $session > 0} {
        foreach line $lines {
            puts stderr $line
        }
        nf_fail "$session critical warnings in this session, [llength $lines] in logs;\
            see above and vivado.log. A warning that is understood can be let through with -allow ID."
    }
}

# Fails on negative slack, or when nothing was timed at all. Returns {wns whs}.
proc nf_require_timing {} {
    set slacks [list]
    foreach kind {setup hold} {
        set path [get_timing_paths -max_paths 1 -nworst 1 -$kind]
        if {[llength $path] == 0} {
            nf_fail "no path was timed for $kind: the clock constraint did not reach the design."
        }
        lappend slacks [get_property SLACK $path]
    }
    lassign $slacks wns whs
    puts "Worst slack: setup $wns ns, hold $whs ns"
    if {$wns < 0 || $whs < 0} {
        nf_fail "timing is not met (setup $wns ns, hold $whs ns): choose a lower clock with 'nfgen emit --clock MHZ'."
    }
    return $slacks
}

# Writes a small JSON file from a flat list of keys and values; values are numbers or texts without quotes.
proc nf_write_summary {file pairs} {
    set channel [open $file w]
    set lines [list]
    foreach {key value} $pairs {
        if {![string is double -strict $value]} {
            set value "\"$value\""
        }
        lappend lines "  \"$key\": $value"
    }
    puts $channel "{\n[join $lines ",\n"]\n}"
    close $channel
}
