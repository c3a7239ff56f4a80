//go:build unix && !linux

package redistest

import (
	"os"
	"os/exec"
	"syscall"
)

func start(cmd *exec.Cmd) error { return cmd.Start() }

func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
