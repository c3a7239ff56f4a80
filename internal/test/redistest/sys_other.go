//go:build !unix

package redistest

import (
	"errors"
	"os"
	"os/exec"
)

func start(cmd *exec.Cmd) error { return cmd.Start() }

func pause(*os.Process) error { return errors.New("processes can't be paused here") }

func resume(*os.Process) error { return errors.New("processes can't be paused here") }
