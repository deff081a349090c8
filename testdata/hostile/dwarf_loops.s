/* Debug information that leads in circles: functions that are inlined into themselves and specify each other, units that share one
 * list of ranges, lines that run backwards. tests/fuzz/seeds/elf/dwarf-loops is made of it:
 * as -o loops.o dwarf_loops.s && ld -shared -z noseparate-code --build-id=none -o dwarf-loops loops.o */
    .text
    .globl first
    .type first, @function
first: nop
    nop
    ret
    .size first, .-first
last:
    .section .debug_abbrev,"",@progbits
abbrev:
    .uleb128 1; .uleb128 0x11; .byte 1            # compile unit with children
    .uleb128 0x11; .uleb128 0x01                  # low_pc addr
    .uleb128 0x55; .uleb128 0x17                  # ranges sec_offset
    .uleb128 0x10; .uleb128 0x17                  # stmt_list
    .byte 0,0
    .uleb128 2; .uleb128 0x2e; .byte 1            # subprogram with children
    .uleb128 0x11; .uleb128 0x01
    .uleb128 0x12; .uleb128 0x01
    .uleb128 0x31; .uleb128 0x13                  # abstract_origin ref4
    .byte 0,0
    .uleb128 3; .uleb128 0x1d; .byte 1            # inlined subroutine with children
    .uleb128 0x31; .uleb128 0x13
    .uleb128 0x55; .uleb128 0x17                  # ranges: the unit's own
    .byte 0,0
    .uleb128 4; .uleb128 0x2e; .byte 0            # subprogram: specification
    .uleb128 0x47; .uleb128 0x13
    .byte 0,0
    .byte 0
    .section .debug_info,"",@progbits
    .rept 8                                        # units that all name the same ranges and lines
9:  .long 8f-7f
7:  .short 4
    .long abbrev
    .byte 8
    .uleb128 1
    .quad 0
    .long ranges
    .long lines
1:  .uleb128 2
    .quad first
    .quad last
    .long 2f-9b                                    # whose origin is 2
3:  .uleb128 3
    .long 1b-9b                                    # inlined: the function that it stands in
    .long ranges
4:  .uleb128 3
    .long 3b-9b
    .long ranges
    .byte 0
    .byte 0
    .byte 0
2:  .uleb128 4
    .long 5f-9b                                    # specification of 5, and that of 2
5:  .uleb128 4
    .long 2b-9b
    .byte 0
8:
    .endr
    .section .debug_ranges,"",@progbits
ranges:
    .rept 64
    .quad first, last
    .endr
    .quad 0,0
    .section .debug_line,"",@progbits
lines:
    .long 6f-5f
5:  .short 4
    .long 4f-3f
3:  .byte 1,1,1,-5,14,13
    .byte 0,1,1,1,1,0,0,0,1,0,0,1
    .byte 0                                        # no folders
    .asciz "a.c"
    .uleb128 0; .uleb128 0; .uleb128 0
    .byte 0
4:  .byte 0; .uleb128 9; .byte 2; .quad first
    .byte 1                                        # a row
    .byte 2; .uleb128 -1                            # back to before it
    .byte 1
    .byte 2; .uleb128 3
    .byte 0,1,1                                    # end
6:
