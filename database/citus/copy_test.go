package citus

import (
	"context"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"

	"plantstore/database/batch"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/database/postgres"
	"plantstore/database/table"
)

// TestTransactionsAreDurable checks the transactions of the embedded dialect, which copies imports.
func TestTransactionsAreDurable(t *testing.T) {
	d, err := Open(postgres.Options{URL: "postgres://127.0.0.1:1/x"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, wait := range []time.Duration{0, time.Second} {
		embedded := d.Dialect
		if got := embedded.SetLockTimeout(wait); !strings.HasSuffix(got, "; "+durably) {
			t.Errorf("transactions begin with %q, want %q as well", got, durably)
		}
	}
}

// TestCopyToAServerThatHangs: the error is that of a timeout, after which the service suspects a node.
func TestCopyToAServerThatHangs(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		server := pgproto3.NewBackend(conn, conn)
		_, _ = server.ReceiveStartupMessage()
		server.Send(&pgproto3.AuthenticationOk{})
		server.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		_ = server.Flush()
		<-t.Context().Done() // without reading
		_ = conn.Close()
	}()
	config, err := pgx.ParseConfig("postgres://x@" + listener.Addr().String() + "/x?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	pool := stdlib.OpenDB(*config)
	defer pool.Close()
	type jar struct {
		ID   int64 `gorm:"primaryKey;autoIncrement:false"`
		Text string
	}
	var changes []*table.Change
	insert := table.Of[jar]().Insert
	for id := range int64(30) { // together more than the buffers of a connection
		changes = append(changes, &table.Change{Statement: insert, Row: reflect.ValueOf(&jar{id, strings.Repeat("x", 1<<20)}).Elem()})
	}
	o := batch.Options{Max: 1, Queue: 1, Timeout: 300 * time.Millisecond, Turns: limit.NewTurns(1, 0)}
	copies := batch.New(o, func(ctx context.Context, _ []int) []error {
		_, err := copyNew(ctx, pool, table.Groups(changes)[0])
		return []error{err}
	})
	defer copies.Close()
	if err := copies.Do(t.Context(), 1); !fault.IsTimeout(err) {
		t.Errorf("got %v, want a timeout", err)
	}
}
