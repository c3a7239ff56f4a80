package serve

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/store"
)

// permitToken is a permit that a client holds, from one call to the next.
type permitToken struct {
	id      [16]byte
	end     time.Time // in whole seconds
	process [16]byte  // whose memory has the counts; zero for a shared store
	limiter string
	key     string
	kept    []decide.Kept
}

// tokenFormat is the version of the format. A token of another version is as good as a forged one.
const tokenFormat = 1

// maxToken bounds what is decoded, in bytes. In base64, a token and names of limits fit into a body.
const maxToken = 40 << 10

var (
	errForged   = errors.New("the token wasn't sealed with this secret: write the same secret on all replicas")
	errExpired  = errors.New("the token has expired: settle earlier, or serve with a longer --token-life")
	errFuture   = errors.New("the token ends too late, so the clock of a replica is wrong: set the clocks")
	errTooLarge = errors.New("the token would be too large: write fewer limits, or shorter keys")
)

// sealer seals tokens, so that clients can't write them.
type sealer struct{ key []byte }

// newSealer returns the sealer of a secret. The same secret may also hash keys, so the seals have a key of their own.
func newSealer(secret []byte) sealer {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("stint serve: tokens"))
	return sealer{mac.Sum(nil)}
}

func (s sealer) sum(data []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(data)
	return mac.Sum(nil)
}

// tokenText is how tokens are written. Strict, so that a token has one text.
var tokenText = base64.RawURLEncoding.Strict()

// seal gives the token an id of its own, and returns its text.
func (s sealer) seal(t *permitToken) (string, error) {
	if _, err := rand.Read(t.id[:]); err != nil {
		return "", err
	}
	data := t.append(make([]byte, sha256.Size, 512))
	if len(data) > maxToken {
		return "", errTooLarge
	}
	copy(data, s.sum(data[sha256.Size:]))
	return tokenText.EncodeToString(data), nil
}

// open returns the token of a text, unless the text is forged, or the token has expired or ends later than any may.
func (s sealer) open(text string, now time.Time) (*permitToken, error) {
	if tokenText.DecodedLen(len(text)) > maxToken {
		return nil, errForged
	}
	data, err := tokenText.DecodeString(text)
	if err != nil || len(data) < sha256.Size {
		return nil, errForged
	}
	body := data[sha256.Size:]
	if !hmac.Equal(data[:sha256.Size], s.sum(body)) {
		return nil, errForged
	}
	t := new(permitToken)
	if !t.decode(body) {
		return nil, errForged
	}
	switch left := t.end.Sub(now); {
	case left <= 0:
		return nil, errExpired
	case left > LongestLife+2*skew: // it would be valid for longer than the mark of its use is kept
		return nil, errFuture
	}
	return t, nil
}

// numbers returns the numbers of what is kept of a limit, in the order of the format.
func numbers(k *decide.Kept, algorithm, debt, path *int64) [16]*int64 {
	s, r := &k.Spec, &k.Receipt
	return [...]*int64{
		algorithm, &s.Units, (*int64)(&s.Period), &s.Burst, &s.Queue, debt, (*int64)(&s.WarmUp), (*int64)(&s.Ban),
		&s.Buckets,
		&k.Cost, &k.Before, &k.Least, &r.Instant, &r.Mark, &r.Cost, path,
	}
}

func (t *permitToken) append(b []byte) []byte {
	b = append(b, tokenFormat)
	b = append(b, t.id[:]...)
	b = append(b, t.process[:]...)
	b = binary.AppendVarint(b, t.end.Unix())
	b = appendText(appendText(b, t.limiter), t.key)
	b = binary.AppendUvarint(b, uint64(len(t.kept)))
	for i := range t.kept {
		k := t.kept[i]
		algorithm, debt, path := int64(k.Spec.Algorithm), int64(0), int64(k.Receipt.Path)
		if k.Spec.Debt {
			debt = 1
		}
		b = appendText(b, k.State)
		for _, n := range numbers(&k, &algorithm, &debt, &path) {
			b = binary.AppendVarint(b, *n)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decode reads what append has written. It reports whether that is all of data.
func (t *permitToken) decode(data []byte) bool {
	r := tokenReader{data: data}
	if format := r.bytes(1); r.bad || format[0] != tokenFormat {
		return false
	}
	copy(t.id[:], r.bytes(len(t.id)))
	copy(t.process[:], r.bytes(len(t.process)))
	t.end = time.Unix(r.signed(), 0)
	t.limiter, t.key = r.text(), r.text()
	for n := r.count(); n > 0 && !r.bad; n-- {
		var k decide.Kept
		var algorithm, debt, path int64
		k.State = r.text()
		for _, n := range numbers(&k, &algorithm, &debt, &path) {
			*n = r.signed()
		}
		if algorithm < 0 || algorithm > 255 || debt < 0 || debt > 1 || path < 0 || path > 255 {
			return false
		}
		k.Spec.Algorithm, k.Spec.Debt, k.Receipt.Path = store.Algorithm(algorithm), debt == 1, uint8(path)
		t.kept = append(t.kept, k)
	}
	return !r.bad && len(r.data) == 0
}

// tokenReader reads the parts of a token. After the first mistake all are empty.
type tokenReader struct {
	data []byte
	bad  bool
}

func (r *tokenReader) bytes(n int) []byte {
	if r.bad || n > len(r.data) {
		r.bad, r.data = true, nil
		return nil
	}
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

func (r *tokenReader) signed() int64 {
	n, size := binary.Varint(r.data)
	if r.bytes(max(size, 1)); size <= 0 {
		r.bad = true
	}
	if r.bad {
		return 0
	}
	return n
}

// count reads how many bytes or parts follow.
func (r *tokenReader) count() int {
	n, size := binary.Uvarint(r.data)
	if r.bytes(max(size, 1)); size <= 0 || n > uint64(len(r.data)) {
		r.bad = true
	}
	if r.bad {
		return 0
	}
	return int(n)
}

func (r *tokenReader) text() string { return string(r.bytes(r.count())) }
