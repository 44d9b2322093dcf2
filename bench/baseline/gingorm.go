package main

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/libtnb/sqlite"
	"go.uber.org/zap"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// plant is both the row and the request, as in most services.
type plant struct {
	ID        int64     `json:"id" binding:"required" gorm:"primaryKey;autoIncrement:false"`
	Name      string    `json:"name" binding:"required,max=255"`
	Tag       *string   `json:"tag,omitempty" binding:"omitempty,max=255"`
	CreatedAt time.Time `json:"-"`
	UpdatedAt time.Time `json:"-"`
}

func (plant) TableName() string { return "plants" }

func (p *plant) response() gin.H {
	return gin.H{"id": p.ID, "name": p.Name, "tag": p.Tag, "created_at": p.CreatedAt, "updated_at": p.UpdatedAt}
}

// ginGorm follows the first pages of Gin's and GORM's documentation.
func ginGorm(databaseURL, token string) (http.Handler, error) {
	gin.SetMode(gin.ReleaseMode)
	return routes(gin.Default(), databaseURL, token, &gorm.Config{TranslateError: true})
}

// tunedGinGorm follows GORM's page on performance, too, and logs with zap.
func tunedGinGorm(databaseURL, token string) (http.Handler, error) {
	log, err := zap.NewProduction()
	if err != nil {
		return nil, err
	}
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(gin.Recovery(), accessLog(log))
	return routes(e, databaseURL, token, &gorm.Config{TranslateError: true, SkipDefaultTransaction: true, PrepareStmt: true})
}

func routes(e *gin.Engine, databaseURL, token string, config *gorm.Config) (http.Handler, error) {
	db, err := openGorm(databaseURL, config)
	if err != nil {
		return nil, err
	}
	r := e.Group("/plants", bearer(token))
	r.POST("", handle(db, create))
	r.GET("", handle(db, list))
	r.GET("/:id", handle(db, get))
	return e, nil
}

// openGorm opens PostgreSQL with poolSize connections, or SQLite with the settings
// of the service.
func openGorm(databaseURL string, config *gorm.Config) (*gorm.DB, error) {
	connections, dialector := poolSize, postgres.Open(databaseURL)
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		connections = 1
		dialector = sqlite.Open("file:" + path + "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	}
	db, err := gorm.Open(dialector, config)
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	return db, nil
}

var errBadRequest = errors.New("bad request")

// handle wraps a handler that returns the body of a success.
func handle(db *gorm.DB, handler func(*gin.Context, *gorm.DB) (any, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		body, err := handler(c, db.WithContext(c.Request.Context()))
		switch {
		case err == nil:
			c.JSON(http.StatusOK, body)
		case errors.Is(err, errBadRequest):
			fail(c, http.StatusBadRequest, err.Error())
		case errors.Is(err, gorm.ErrDuplicatedKey):
			fail(c, http.StatusConflict, "the id is taken")
		case errors.Is(err, gorm.ErrRecordNotFound):
			fail(c, http.StatusNotFound, "no such plant")
		default:
			_ = c.Error(err)
			fail(c, http.StatusInternalServerError, "internal error")
		}
	}
}

func fail(c *gin.Context, status int, message string) {
	c.AbortWithStatusJSON(status, gin.H{"error": status, "message": message})
}

func create(c *gin.Context, db *gorm.DB) (any, error) {
	var p plant
	if err := c.ShouldBindJSON(&p); err != nil {
		return nil, errors.Join(errBadRequest, err)
	}
	if err := db.Create(&p).Error; err != nil {
		return nil, err
	}
	c.Header("Location", "/plants/"+strconv.FormatInt(p.ID, 10))
	return gin.H{"name": p.Name, "tag": p.Tag}, nil
}

func get(c *gin.Context, db *gorm.DB) (any, error) {
	var p plant
	err := db.First(&p, "id = ?", c.Param("id")).Error
	return p.response(), err
}

// list pages by offset, as in most services.
func list(c *gin.Context, db *gorm.DB) (any, error) {
	var query struct {
		Limit  int `form:"limit,default=50" binding:"min=1,max=1000"`
		Offset int `form:"offset"`
	}
	if err := c.ShouldBindQuery(&query); err != nil {
		return nil, errors.Join(errBadRequest, err)
	}
	var found []plant
	err := db.Order("id").Limit(query.Limit).Offset(query.Offset).Find(&found).Error
	page := make([]gin.H, len(found))
	for i := range found {
		page[i] = found[i].response()
	}
	return page, err
}

func bearer(token string) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.GetHeader("Authorization") != "Bearer "+token {
			fail(c, http.StatusUnauthorized, "invalid token")
		}
	}
}

func accessLog(log *zap.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		start := time.Now()
		c.Next()
		log.Info("request", zap.String("method", c.Request.Method), zap.String("path", c.Request.URL.Path),
			zap.Int("status", c.Writer.Status()), zap.Duration("duration", time.Since(start)))
	}
}
