package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestSocketRemovesItsOwnFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	first, err := listenOn("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := listenOn("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the file of another listener was removed: %v", err)
	} else {
		c.Close()
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("its own file is still there: %v", err)
	}
}
