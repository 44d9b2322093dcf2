package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/libtnb/sqlite"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

// ginGorm follows GORM's page on performance: it has no transaction for each write, prepares its
// statements, and logs nothing. It opens SQLite with the settings of the service.
func (a *api) ginGorm(databaseURL string) (http.Handler, error) {
	connections, dialector := poolSize, postgres.Open(databaseURL)
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		connections = 1
		dialector = sqlite.Open("file:" + path + "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	}
	db, err := gorm.Open(dialector, &gorm.Config{
		TranslateError: true, SkipDefaultTransaction: true, PrepareStmt: true, Logger: logger.Discard,
	})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)

	gin.SetMode(gin.ReleaseMode)
	e, m := gin.New(), model{db}
	e.Use(gin.Recovery())
	handle := func(method, path string, do action) {
		e.Handle(method, path, func(c *gin.Context) { a.serve(do, c.Writer, c.Request, c.Param("id"), c.ShouldBindJSON) })
	}
	handle("POST", "/plants", m.create)
	handle("GET", "/plants/:id", m.get)
	handle("PUT", "/plants/:id", m.put)
	handle("PATCH", "/plants/:id", m.patch)
	handle("DELETE", "/plants/:id", m.remove)
	return e, nil
}

type model struct{ *gorm.DB }

func (m model) create(ctx context.Context, in *plant) error {
	return m.WithContext(ctx).Create(in).Error
}

func (m model) get(ctx context.Context, out *plant) error {
	return m.WithContext(ctx).First(out).Error
}

func (m model) put(ctx context.Context, in *plant) error {
	return m.WithContext(ctx).Clauses(clause.OnConflict{
		Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"name", "tag", "updated_at"}),
	}, clause.Returning{}).Create(in).Error
}

// patch does not clear a tag: GORM does not update fields with their zero value.
func (m model) patch(ctx context.Context, in *plant) error {
	return found(m.WithContext(ctx).Clauses(clause.Returning{}).Updates(in))
}

func (m model) remove(ctx context.Context, in *plant) error {
	return found(m.WithContext(ctx).Delete(in))
}

// found returns an error if there is none and no row was written.
func found(result *gorm.DB) error {
	if result.Error == nil && result.RowsAffected == 0 {
		return errMissing
	}
	return result.Error
}
