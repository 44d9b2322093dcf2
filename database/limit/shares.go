package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrShare means that a limit would be exceeded, in all or by a client. Nothing has begun.
var ErrShare = errors.New("no share is left")

// Shares limits how much of something may be taken: all by all clients together, and each by
// each client, but no more than it leaves. So clients that take all they can end with equal
// shares, and leave a share for another: two have 4 of 12 each. It is the rule of Choudhury and
// Hahne, Dynamic Queue Length Thresholds for Shared-Memory Packet Switches (1998). It is safe for
// concurrent use.
type Shares struct {
	all, each int64

	mu    sync.Mutex
	taken int64
	of    map[string]int64 // by client
}

// NewShares returns Shares with nothing taken.
func NewShares(all, each int64) *Shares {
	return &Shares{all: all, each: each, of: make(map[string]int64)}
}

// Take takes n, which may be 0, for client. It fails with ErrShare rather than wait, which could
// take minutes.
func (s *Shares) Take(client string, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.of[client]
	if left := s.all - s.taken; n > 0 && has+n > min(s.each, left) {
		return fmt.Errorf("%w: %d of %d are in use; this client has %d, and may have %d, but no more than are left", ErrShare, s.taken, s.all, has, s.each)
	}
	s.taken += n
	s.of[client] = has + n
	return nil
}

// Give gives n of client back.
func (s *Shares) Give(client string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= n
	if s.of[client] -= n; s.of[client] == 0 {
		delete(s.of, client)
	}
}

// Do calls do with 1 taken for ctx's client. It fails like Take.
func (s *Shares) Do(ctx context.Context, do func() error) error {
	client := Client(ctx)
	if err := s.Take(client, 1); err != nil {
		return err
	}
	defer s.Give(client, 1)
	return do()
}

// InUse returns how much is taken.
func (s *Shares) InUse() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}
