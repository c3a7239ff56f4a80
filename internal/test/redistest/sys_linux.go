package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

type startRequest struct {
	cmd   *exec.Cmd
	reply chan error
}

// starter is a thread that lives as long as the process. A child's death signal comes
// when the thread that started it dies, so not every thread will do.
var starter = sync.OnceValue(func() chan<- startRequest {
	requests := make(chan startRequest)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.reply <- r.cmd.Start()
		}
	}()
	return requests
})

// start starts a process that dies with this one, even if this one is killed.
func start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r := startRequest{cmd, make(chan error)}
	starter() <- r
	return <-r.reply
}

// pause returns when the process has stopped: the signal alone lets it finish
// what it is doing.
func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
		if err != nil {
			return err
		}
		if _, rest, found := bytes.Cut(stat, []byte(") ")); found && rest[0] == 'T' {
			return nil
		}
	}
	return errors.New("still running after SIGSTOP")
}

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
