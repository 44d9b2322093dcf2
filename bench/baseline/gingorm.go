package main

import (
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/libtnb/sqlite"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

// plant is both the row and the request, as in most services.
type plant struct {
	ID int64 `json:"id" binding:"required" gorm:"primaryKey;autoIncrement:false"`
	Content
	CreatedAt time.Time `json:"-"`
	UpdatedAt time.Time `json:"-"`
}

// Content is the body of a PUT.
type Content struct {
	Name string  `json:"name" binding:"required,max=255"`
	Tag  *string `json:"tag,omitempty" binding:"omitempty,max=255"`
}

func (p *plant) response() gin.H {
	return gin.H{"id": p.ID, "name": p.Name, "tag": p.Tag, "created_at": p.CreatedAt, "updated_at": p.UpdatedAt}
}

// ginGorm follows the first pages of Gin's and GORM's documentation.
func ginGorm(databaseURL, token string) (http.Handler, error) {
	gin.SetMode(gin.ReleaseMode)
	return serve(gin.Default(), databaseURL, token, &gorm.Config{TranslateError: true})
}

// tunedGinGorm follows GORM's page on performance, and logs with zap; GORM itself logs nothing.
func tunedGinGorm(databaseURL, token string) (http.Handler, error) {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(gin.Recovery(), accessLog())
	return serve(e, databaseURL, token, &gorm.Config{
		TranslateError: true, SkipDefaultTransaction: true, PrepareStmt: true, Logger: logger.Discard,
	})
}

func serve(e *gin.Engine, databaseURL, token string, config *gorm.Config) (http.Handler, error) {
	db, err := openGorm(databaseURL, config)
	r := e.Group("/plants", func(c *gin.Context) {
		if c.GetHeader("Authorization") != "Bearer "+token {
			fail(c, http.StatusUnauthorized, "invalid token")
		}
	})
	r.POST("", handle(db, create))
	r.GET("", handle(db, list))
	r.GET("/:id", handle(db, get))
	r.PUT("/:id", handle(db, put))
	r.PATCH("/:id", handle(db, patch))
	r.DELETE("/:id", handle(db, remove))
	return e, err
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
	if err == nil {
		pool.SetMaxOpenConns(connections)
		pool.SetMaxIdleConns(connections)
	}
	return db, err
}

var errBadRequest = errors.New("bad request")

// handle wraps a handler that returns the body of a success, or nil for none.
func handle(db *gorm.DB, handler func(*gin.Context, *gorm.DB) (any, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		body, err := handler(c, db.WithContext(c.Request.Context()))
		switch {
		case err == nil && body == nil:
			c.Status(http.StatusNoContent)
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

func put(c *gin.Context, db *gorm.DB) (any, error) {
	var in Content
	p, err := bindTarget(c, &in)
	if err != nil {
		return nil, err
	}
	p.Content = in
	err = db.Clauses(clause.OnConflict{
		Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"name", "tag", "updated_at"}),
	}, clause.Returning{}).Create(&p).Error
	return p.response(), err
}

// patch does not clear a tag: GORM does not update fields with their zero value.
func patch(c *gin.Context, db *gorm.DB) (any, error) {
	var in struct {
		Name string  `json:"name" binding:"max=255"`
		Tag  *string `json:"tag" binding:"omitempty,max=255"`
	}
	p, err := bindTarget(c, &in)
	if err != nil {
		return nil, err
	}
	p.Content = Content(in)
	result := db.Clauses(clause.Returning{}).Updates(&p)
	return p.response(), found(result)
}

// bindTarget returns a plant with the id in the path and binds the body to in.
func bindTarget(c *gin.Context, in any) (p plant, err error) {
	if p.ID, err = strconv.ParseInt(c.Param("id"), 10, 64); err == nil {
		err = c.ShouldBindJSON(in)
	}
	if err != nil {
		err = errors.Join(errBadRequest, err)
	}
	return p, err
}

func remove(c *gin.Context, db *gorm.DB) (any, error) {
	return nil, found(db.Delete(&plant{}, "id = ?", c.Param("id")))
}

// found returns an error if there was none and no row was written.
func found(result *gorm.DB) error {
	if result.Error == nil && result.RowsAffected == 0 {
		return gorm.ErrRecordNotFound
	}
	return result.Error
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

// accessLog logs the fields of the service's log with its encoder. It logs each request, while
// zap.NewProduction would drop most of them.
func accessLog() gin.HandlerFunc {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = func(d time.Duration, to zapcore.PrimitiveArrayEncoder) {
		to.AppendFloat64(float64(d.Microseconds()) / 1000)
	}
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(encoding), zapcore.Lock(os.Stderr), zap.InfoLevel))
	return func(c *gin.Context) {
		start, id := time.Now(), rand.Text()
		c.Header("X-Request-Id", id)
		c.Next()
		sender := tokenName
		if c.Writer.Status() == http.StatusUnauthorized {
			sender = ""
		}
		log.Info("request", zap.String("request_id", id), zap.String("method", c.Request.Method), zap.String("path", c.Request.URL.Path),
			zap.Int("status", c.Writer.Status()), zap.Duration("duration", time.Since(start)), zap.Int("bytes", max(c.Writer.Size(), 0)),
			zap.String("client", c.ClientIP()), zap.String("token", sender))
	}
}
