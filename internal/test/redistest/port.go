package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are below the range that systems use for outgoing connections (32768 and up on
// Linux, 49152 elsewhere), so that a server that died finds its port free when it comes
// back. A cluster's bus port is always busOffset above the server's; the two halves of
// the range don't meet.
const (
	firstPort = 12000
	lastPort  = 21999
	busOffset = 10000
)

// port is a number that only its holder uses.
type port struct {
	number int
	claim  net.PacketConn
}

// reserve finds a free port whose bus port is also free, and keeps it for the caller
// while the server on it is down. The claim is a UDP socket of the same number: all
// test processes of a machine see it, and it can't outlive its own process.
func reserve() (*port, error) {
	const span = lastPort - firstPort + 1
	first := rand.IntN(span)
	for i := range 200 {
		n := firstPort + (first+i)%span
		claim, err := net.ListenPacket("udp4", fmt.Sprintf("127.0.0.1:%d", n))
		if err != nil {
			continue
		}
		if free(n) && free(n+busOffset) {
			return &port{number: n, claim: claim}, nil
		}
		claim.Close()
	}
	return nil, errors.New("redistest: no free port on loopback")
}

func free(n int) bool {
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", n))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func (p *port) release() { p.claim.Close() }
