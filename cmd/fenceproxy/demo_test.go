package main

import (
	"bytes"
	"io"
	"os"
	"testing"
)

func TestColoursAreForTerminals(t *testing.T) {
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a character device, as terminals are
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, test := range []struct {
		name    string
		out     io.Writer
		noColor bool
		term    string
		want    string
	}{
		{"a terminal", device, false, "xterm", "\x1b[31mx\x1b[0m"},
		{"NO_COLOR", device, true, "xterm", "x"},
		{"a dumb terminal", device, false, "dumb", "x"},
		{"a file", file, false, "xterm", "x"},
		{"a pipe of the program", new(bytes.Buffer), false, "xterm", "x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("TERM", test.term)
			t.Setenv("NO_COLOR", "1")
			if !test.noColor {
				if err := os.Unsetenv("NO_COLOR"); err != nil { // t.Setenv puts the old value back
					t.Fatal(err)
				}
			}
			if got := colours(test.out)(red, "x"); got != test.want {
				t.Errorf("got %q; want %q", got, test.want)
			}
		})
	}
}
