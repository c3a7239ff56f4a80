package wire

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// errTwins means that the script and the steps disagree, which is a fault of this module.
var errTwins = errors.New("redisstore: the script on the server and the library decided differently: " +
	"please report this bug")

// Unanswered is what a script hasn't decided or settled because windows of the calendar were
// missing: those around the instants in Asked.
type Unanswered[T any] struct {
	Items []T
	Asked []int64
}

// isQuestion reports whether an answer is a question, and records what it asks for.
func (u *Unanswered[T]) isQuestion(answer any) (bool, error) {
	text, ok := answer.(string)
	if !ok || !strings.HasPrefix(text, "?") {
		return false, nil
	}
	for word := range strings.SplitSeq(text[1:], ",") {
		at, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return true, fmt.Errorf("redisstore: the script asks for %.80q", text)
		}
		if !slices.Contains(u.Asked, at) {
			u.Asked = append(u.Asked, at)
		}
	}
	return true, nil
}

// instantOf removes the server's instant from an answer.
func instantOf(reply any) (words []any, now int64, err error) {
	words, ok := reply.([]any)
	if !ok || len(words) == 0 {
		return nil, 0, fmt.Errorf("redisstore: the script answered with a %T", reply)
	}
	if now, ok = words[0].(int64); !ok {
		return nil, 0, fmt.Errorf("redisstore: the script's instant is a %T", words[0])
	}
	return words[1:], now, nil
}
