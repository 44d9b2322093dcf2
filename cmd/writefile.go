package cmd

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"

	"plantstore/database/sqlite"
)

// writeFile calls write to write the file path. On error, the file remains unchanged.
func writeFile(path string, write func(io.Writer) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // replace the target of a link, not the link
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		device, err := os.OpenFile(path, os.O_WRONLY, 0) // devices and pipes cannot be replaced
		if err != nil {
			return err
		}
		return errors.Join(write(device), device.Close())
	}
	file, err := os.OpenFile(path+"."+rand.Text()[:8]+".part", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return sqlite.PartError(path, err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // unless it was renamed
	if info != nil {                              // a private file stays private
		err = file.Chmod(info.Mode().Perm())
	}
	if err == nil {
		err = write(file)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return sqlite.RenameDurably(file.Name(), path)
}
