package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plantstore/controllers"
	"plantstore/database"
	"plantstore/database/background"
)

// followWait is how long the service waits for a change, and followGrace how much later its
// response may arrive.
const (
	followWait  = 30 * time.Second
	followGrace = 30 * time.Second
)

func newFollow(s *settings) *cobra.Command {
	var after, target, secretFile, cursorPath string
	cmd := &cobra.Command{
		Use:   "follow",
		Short: "Print the changes of a running service, or deliver them to a webhook",
		Long: "Print the changes of a running service as NDJSON, from now on: for each row that is\n" +
			"written, its id and its new state, or null if it was deleted. --resource names the rows.\n\n" +
			"With --post, deliver them to a webhook instead, in order and in batches, signed according to\n" +
			"Standard Webhooks 1.0. A batch is sent again unless the response is a 2xx, at first after\n" +
			"5 seconds, later after 5 minutes, or after its Retry-After; a 410 ends the command. The admin\n" +
			"address then has health and metrics, as that of the service. With --cursor-file, a restart\n" +
			"misses nothing: the file has the cursor after the last batch that was printed or\n" +
			"delivered. The batch after it may be repeated.\n\n" +
			exitStatuses + "\n  3  the webhook responded 410, the cursor is no longer valid, or the cursor file holds no cursor",
		Example: "  plantstore follow --after 0\n" +
			"  plantstore follow --post https://example.org/hook --secret-file secret --cursor-file cursor",
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			deliver, p := printChanges, new(progress)
			given := cmd.Flags().Changed // also with an empty value, as of a variable that is not set
			if given("post") != given("secret-file") {
				return usageError(errors.New("--post and --secret-file need each other"))
			}
			if given("cursor-file") && cursorPath == "" {
				return usageError(errors.New("--cursor-file must be a path"))
			}
			if given("post") {
				hook, err := newWebhook(s.resource.Name(), target, secretFile)
				if err != nil {
					return usageError(err)
				}
				deliver, p = hook.deliver, hook.progress
				s.checkFile("--secret-file", secretFile)
			}
			if s.resource.Changes(nil) == nil {
				return usageError(fmt.Errorf("--resource: %s have no feed of changes", s.resource.Name()))
			}
			if _, ok := database.ParseCursor(after); given("after") && !ok {
				return usageError(errors.New("--after must be a cursor, a time such as 2026-11-25T00:00:00Z, or 0 for the beginning"))
			}
			c, err := s.client()
			if err != nil {
				return err
			}
			if given("post") {
				stop, err := p.serve(c.cfg)
				if err != nil {
					return err
				}
				defer func() { _ = stop() }()
			}
			return c.follow(cmd.Context(), after, cursorPath, deliver, p)
		},
	}
	cmd.Flags().StringVar(&after, "after", "", "`CURSOR` or time to start at if the cursor file does not exist, or 0 for the beginning, with all rows")
	cmd.Flags().StringVar(&target, "post", "", "`URL` of the webhook")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "`FILE` with the secret of the webhook: whsec_ and 24 to 64 bytes in base64")
	cmd.Flags().StringVar(&cursorPath, "cursor-file", "", "`FILE` that keeps the place in the feed")
	return s.addTo(cmd, clientFlags+" admin-address")
}

// feedChanges is a part of the feed as the service sent it.
type feedChanges struct {
	Changes []json.RawMessage `json:"changes"`
	Cursor  string            `json:"cursor"`
}

func printChanges(_ context.Context, changes feedChanges) error {
	var lines []byte
	for _, change := range changes.Changes {
		lines = append(append(lines, change...), '\n')
	}
	_, err := os.Stdout.Write(lines)
	return err
}

// readCursor returns the cursor in the file path, if it exists, or else after. path may be empty.
func readCursor(path, after string) (string, error) {
	text, err := os.ReadFile(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return after, nil
	}
	if err != nil {
		return "", err
	}
	cursor := strings.TrimSpace(string(text))
	if _, ok := database.ParseCursor(cursor); !ok {
		return "", &exitError{fmt.Errorf("%s has no cursor: remove it, and start with --after 0, or without --after to skip earlier changes", path), exitFinal}
	}
	return cursor, nil
}

// follow calls deliver with changes until ctx ends. It starts at the cursor in the file path,
// if it exists, or else at after, and keeps the cursor there. p notes how far it has come.
func (c *client) follow(ctx context.Context, after, path string, deliver func(context.Context, feedChanges) error, p *progress) error {
	after, err := readCursor(path, after)
	if err != nil {
		return err
	}
	save := func(cursor string) error {
		if path == "" || cursor == "" {
			return nil
		}
		return writeFile(path, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, cursor)
			return err
		})
	}
	if err := save(after); err != nil { // before anything is delivered
		return err
	}
	first := backoff{time.Second, time.Minute}
	for retry := first; ; {
		changes, err := c.changesAfter(ctx, after)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if response, ok := errors.AsType[*responseError](err); ok {
				switch status := response.status; {
				case status == http.StatusGone: // the cursor is no longer valid
					return &exitError{err, exitFinal}
				case status < 500 && status != http.StatusTooManyRequests, status == http.StatusNotImplemented: // it would not succeed later
					return err
				}
			}
			p.note(true, err)
			pause := retry.next()
			fmt.Fprintf(os.Stderr, "plantstore: %s; trying again in %s\n", oneLine(err.Error()), pause.Round(time.Second))
			if !background.Sleep(ctx, pause) {
				return nil
			}
			continue
		}
		if retry != first {
			fmt.Fprintln(os.Stderr, "plantstore: the service responds again")
			retry = first
		}
		p.note(len(changes.Changes) > 0, nil)
		if len(changes.Changes) > 0 {
			if err := deliver(ctx, changes); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			p.note(len(changes.Changes) == controllers.MaxLimit, nil)
		}
		if changes.Cursor != after {
			if err := save(changes.Cursor); err != nil {
				return err
			}
		}
		after = changes.Cursor
	}
}

// changesAfter waits for changes after a cursor, or from now on if it is empty.
func (c *client) changesAfter(ctx context.Context, after string) (changes feedChanges, err error) {
	ctx, cancel := context.WithTimeout(ctx, followWait+followGrace)
	defer cancel()
	query := url.Values{"limit": {strconv.Itoa(controllers.MaxLimit)}}
	if after != "" { // without it, the cursor must be known at once
		query.Set("after", after)
		query.Set("wait", fmt.Sprintf("%.0fs", followWait.Seconds()))
	}
	response, err := c.send(c.request(ctx, http.MethodGet, "changes", query, controllers.TypeJSON, nil))
	if err != nil {
		return changes, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&changes); err != nil {
		return changes, fmt.Errorf("the response of %s is not complete: %w", c.base, err)
	}
	if changes.Cursor == "" {
		return changes, fmt.Errorf("%s responded without a cursor: is it a Plant Store?", c.base)
	}
	return changes, nil
}

// backoff is the pauses between attempts: each pause is twice as long as the last, up to a limit.
type backoff struct{ pause, limit time.Duration }

// next returns the next pause, with a fifth more or less, so that clients do not come
// together.
func (b *backoff) next() time.Duration {
	pause := b.pause
	b.pause = min(2*pause, b.limit)
	return pause*4/5 + rand.N(pause*2/5)
}
