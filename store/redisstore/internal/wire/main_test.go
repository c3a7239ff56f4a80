package wire

import (
	"testing"

	"github.com/stint-go/stint/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
