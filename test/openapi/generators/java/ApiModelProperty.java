/** What generated models name, and Debian does not have. */
package io.swagger.annotations;

public @interface ApiModelProperty {
  String value() default "";

  boolean required() default false;

  String example() default "";
}
